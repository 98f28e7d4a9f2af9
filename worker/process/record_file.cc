#include "worker/process/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "common/base/files.h"
#include "common/base/unique_fd.h"

namespace muster {

Status MakePrivateTree(const std::string& directory) {
  namespace fs = std::filesystem;
  constexpr fs::perms kOthers = fs::perms::group_all | fs::perms::others_all;
  if (const fs::path parent = fs::path(directory).parent_path(); !parent.empty())
    MUSTER_RETURN_IF_ERROR(MakeDirectories(parent.string()));
  MUSTER_RETURN_IF_ERROR(MakeDirectories(directory, kPrivateDirectory));
  const auto close = [](const fs::path& path) {
    std::error_code not_ours;
    fs::permissions(path, kOthers, fs::perm_options::remove | fs::perm_options::nofollow, not_ours);
  };
  close(directory);
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error))
    close(entry->path());
  return OkStatus();
}

std::vector<std::string> ReadLastLines(const std::string& path, int max_lines, int max_bytes) {
  std::vector<std::string> lines;
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return lines;
  const off_t begin = std::max<off_t>(0, info.st_size - max_bytes);
  std::string text(static_cast<std::size_t>(info.st_size - begin), '\0');
  const ssize_t n = ::pread(fd.get(), text.data(), text.size(), begin);
  if (n <= 0) return lines;
  text.resize(static_cast<std::size_t>(n));
  // A line cut by the window is kept: the end of a long line is better than nothing.
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (lines.size() > static_cast<std::size_t>(max_lines))
    lines.erase(lines.begin(), lines.end() - max_lines);
  return lines;
}

}  // namespace muster
