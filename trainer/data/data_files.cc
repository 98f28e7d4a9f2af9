#include "trainer/data/data_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "trainer/data/encoded_rows.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::optional<DataKind> KindOf(const std::string& path) {
  for (const char* ending : {".jsonl", ".json", ".jsonl.gz", ".json.gz"})
    if (path.ends_with(ending)) return DataKind::kText;
  for (const char* ending : {".npy", ".bin"})
    if (path.ends_with(ending)) return DataKind::kTokens;
  return std::nullopt;
}

Status NoSuchEnding(const std::string& path) {
  if (path.ends_with(".parquet"))
    return InvalidArgument(path +
                           " is not read: there is no reader of Parquet here; write it as rows of "
                           "text once: python -c 'import sys, pandas; "
                           "pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], "
                           "orient=\"records\", lines=True)' ROWS.parquet ROWS.jsonl");
  return InvalidArgument(path +
                         " has another ending than .jsonl, .json (both also with .gz), .npy and "
                         ".bin, which are read");
}

// Sorted by name, so that all nodes have the rows in one order.
Result<std::vector<std::string>> FilesWithin(const std::string& folder) {
  std::vector<std::string> found;
  std::optional<std::string> parquet;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string path = it->path().string();
    std::error_code gone;
    if (it->path().filename().string().starts_with(".") || it->is_directory(gone)) continue;
    if (path.ends_with(".parquet")) parquet = path;
    if (KindOf(path)) found.push_back(path);
  }
  if (error) return ErrnoStatus(error.value(), "read the folder " + folder);
  std::sort(found.begin(), found.end());
  if (!found.empty()) return found;
  if (parquet) return NoSuchEnding(*parquet);
  return InvalidArgument("the folder " + folder +
                         " has no file that ends in .jsonl, .json (both "
                         "also with .gz), .npy or .bin");
}

Status AddNamed(const std::string& path, const std::string& key, std::vector<std::string>* paths) {
  std::error_code error;
  if (!fs::exists(path, error))
    return NotFound("there is no " + path + "; " + key + " names files or folders of rows");
  if (fs::is_directory(path, error)) {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> within, FilesWithin(path));
    paths->insert(paths->end(), within.begin(), within.end());
    return OkStatus();
  }
  if (!KindOf(path)) return NoSuchEnding(path);
  paths->push_back(path);
  return OkStatus();
}

}  // namespace

Result<DataFiles> FindDataFiles(const std::vector<std::string>& named, const std::string& key) {
  DataFiles files;
  for (const std::string& path : named) MUSTER_RETURN_IF_ERROR(AddNamed(path, key, &files.paths));
  if (files.paths.empty()) return InvalidArgument(key + " names no file");
  if (files.paths.size() > static_cast<std::size_t>(kMaxRowFiles))
    return InvalidArgument(key + " names " + std::to_string(files.paths.size()) +
                           " files, more than " + std::to_string(kMaxRowFiles) +
                           "; join some of them");
  files.kind = *KindOf(files.paths.front());
  for (const std::string& path : files.paths)
    if (*KindOf(path) != files.kind)
      return InvalidArgument(key + " names text and token ids (" + files.paths.front() + " and " +
                             path + "); name files of one kind");
  return files;
}

}  // namespace muster
