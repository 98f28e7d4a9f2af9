#include "trainer/data/text_rows.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/base/files.h"
#include "common/base/unique_fd.h"
#include "trainer/data/cache_key.h"
#include "trainer/data/encode_files.h"
#include "trainer/data/text_dataset.h"
#include "trainer/data/token_cache.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr int kPauseMillis = 50;
// Of the same files: one per tokenizer, template or length that somebody tries out.
constexpr std::size_t kKeptEntries = 4;
// An entry that is damaged again and again lies on a disk that keeps nothing.
constexpr int kMostTries = 4;

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

void Touch(int fd) { (void)::futimens(fd, nullptr); }

// Removes a file that somebody locks as long as it is in use, if nobody does.
void RemoveUnused(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (fd.valid() && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
}

// Older entries of the same files, and what writers that were killed have left.
void Prune(const std::string& directory, std::uint64_t files) {
  std::vector<std::pair<fs::file_time_type, std::string>> entries;
  std::error_code error;
  for (auto it = fs::directory_iterator(directory, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string path = it->path().string();
    const std::string name = it->path().filename().string();
    std::error_code gone;
    if (name.find(".tokens.tmp.") != std::string::npos) {
      RemoveUnused(path);
    } else if (name.ends_with(".tokens.lock")) {
      if (!Exists(path.substr(0, path.size() - 5))) RemoveUnused(path);
    } else if (name.ends_with(".tokens")) {
      const std::optional<CacheEntryId> id = ReadEntryId(path);
      if (id && id->files == files) entries.emplace_back(it->last_write_time(gone), path);
    }
  }
  std::sort(entries.rbegin(), entries.rend());
  for (std::size_t i = kKeptEntries; i < entries.size(); ++i) ::unlink(entries[i].second.c_str());
}

// Words of text are longer than tokens, as a rule: an entry takes about as much as its files.
Status CheckRoom(const std::vector<std::string>& paths, const std::string& directory) {
  std::uint64_t bytes = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    if (!error) bytes += size;
  }
  struct statvfs room = {};
  if (::statvfs(directory.c_str(), &room) != 0) return OkStatus();
  const std::uint64_t left = std::uint64_t{room.f_bavail} * room.f_frsize;
  if (left >= bytes) return OkStatus();
  return ResourceExhausted(directory + " has " + std::to_string(left >> 20) +
                           " MiB left for the tokens of " + std::to_string(bytes >> 20) +
                           " MiB of text");
}

// What may happen to one entry of the cache until it can be used.
class Entry {
 public:
  Entry(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
        const TextOptions& options, const TextRowsRun& run, std::uint64_t key)
      : paths_(paths),
        tokenizer_(tokenizer),
        options_(options),
        run_(run),
        key_(key),
        path_(run.cache_dir + "/" + CacheEntryName(key)) {}

  // Null: the cache is of no use, and trouble() says why. An error is one of the rows.
  Result<std::unique_ptr<const Dataset>> Load(std::vector<std::string>* notes) {
    for (int tries = 0; tries < kMostTries; ++tries) {
      auto opened = CachedDataset::Open(path_, key_, options_.vocab_size, paths_, run_.on_read);
      if (opened.ok()) {
        (void)::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
        return std::unique_ptr<const Dataset>(*std::move(opened));
      }
      trouble_ = opened.status();
      if (trouble_.code() == StatusCode::kDataLoss) {
        notes->push_back(trouble_.message() + "; it is made anew");
        ::unlink(path_.c_str());
      } else if (trouble_.code() != StatusCode::kNotFound) {
        break;
      }
      MUSTER_ASSIGN_OR_RETURN(const bool goes_on, WriteOrAwait());
      if (!goes_on) break;
    }
    return std::unique_ptr<const Dataset>();
  }

  const Status& trouble() const { return trouble_; }

 private:
  // False: it could not be written, for trouble(). True: somebody has written it.
  Result<bool> WriteOrAwait() {
    trouble_ = MakeDirectories(run_.cache_dir);
    if (!trouble_.ok()) return false;
    const std::string lock_path = path_ + ".lock";
    const UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!lock.valid()) {
      trouble_ = ErrnoStatus(errno, "open " + lock_path);
      return false;
    }
    AwaitTurn(lock.get());
    if (Exists(path_)) return true;
    trouble_ = CheckRoom(paths_, run_.cache_dir);
    if (!trouble_.ok()) return false;
    MUSTER_RETURN_IF_ERROR(Write(lock.get()));
    if (trouble_.ok()) Prune(run_.cache_dir, HashOfPaths(paths_));
    return trouble_.ok();
  }

  // Until the entry is there, or is this process's to write: nobody else does, or who does stands
  // still, or the file system knows no locks. Two that write harm nobody; one of them is in vain.
  void AwaitTurn(int lock) const {
    timespec seen = {};
    TimePoint moved = SystemClock().Now();
    while (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
      if ((errno != EWOULDBLOCK && errno != EINTR) || Exists(path_)) return;
      struct stat info = {};
      if (::fstat(lock, &info) != 0) return;
      if (info.st_mtim.tv_sec != seen.tv_sec || info.st_mtim.tv_nsec != seen.tv_nsec) {
        seen = info.st_mtim;
        moved = SystemClock().Now();
        if (run_.on_read) run_.on_read();
      }
      if (run_.on_wait) {
        const TimePoint before = SystemClock().Now();
        run_.on_wait();
        // Who writes may be held up by the same thing.
        moved += SystemClock().Now() - before;
      }
      if (SystemClock().Now() - moved > run_.patience) return;
      ::poll(nullptr, 0, kPauseMillis);
    }
  }

  // OK with trouble(): the disk has not taken it.
  Status Write(int lock) {
    auto writer = TokenCacheWriter::Create(path_, {key_, HashOfPaths(paths_)});
    trouble_ = writer.status();
    if (!writer.ok()) return OkStatus();
    Touch(lock);
    const auto take = [&](const EncodedRows& rows) {
      Touch(lock);
      return trouble_ = (*writer)->Add(rows);
    };
    const auto on_rows = [&](std::int64_t rows) {
      if (run_.on_read) run_.on_read();
      if (run_.on_rows) run_.on_rows(rows);
    };
    const Status encoded =
        EncodeFiles(paths_, tokenizer_, options_, {run_.cache_threads, on_rows}, take);
    if (!trouble_.ok()) return OkStatus();
    MUSTER_RETURN_IF_ERROR(encoded);
    const DatasetStats& stats = (*writer)->stats();
    if (stats.rows == 0) return NoRowsLeft(paths_, stats, options_.max_seq_len);
    trouble_ = (*writer)->Finish();
    return OkStatus();
  }

  const std::vector<std::string>& paths_;
  const Tokenizer& tokenizer_;
  const TextOptions& options_;
  const TextRowsRun& run_;
  const std::uint64_t key_;
  const std::string path_;
  Status trouble_;
};

}  // namespace

Result<TextRows> LoadTextRows(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                              const TextOptions& options, const TextRowsRun& run) {
  TextRows rows;
  if (!run.cache_dir.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const std::uint64_t key,
                            CacheKey(paths, options.model_dir, options, run.on_read));
    Entry entry(paths, tokenizer, options, run, key);
    MUSTER_ASSIGN_OR_RETURN(rows.dataset, entry.Load(&rows.notes));
    if (rows.dataset) return rows;
    rows.notes.push_back("the tokens are kept in memory instead of in " + run.cache_dir + ": " +
                         entry.trouble().message());
  }
  const auto on_rows = [&](std::int64_t count) {
    if (run.on_read) run.on_read();
    if (run.on_rows) run.on_rows(count);
  };
  MUSTER_ASSIGN_OR_RETURN(TextDataset dataset,
                          TextDataset::Load(paths, tokenizer, options, {run.threads, on_rows}));
  rows.dataset = std::make_unique<const TextDataset>(std::move(dataset));
  return rows;
}

}  // namespace muster
