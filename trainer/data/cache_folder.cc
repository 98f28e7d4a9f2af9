#include "trainer/data/cache_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "common/base/unique_fd.h"
#include "trainer/data/token_cache.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTemporary = ".tokens.tmp.";
// Entries of the same files: one per tokenizer, template or length that a user tries out.
constexpr std::size_t kKeptEntries = 4;
// Age of what another host may have in hand: longer than a reader's marks are apart, and than
// clocks differ.
constexpr std::time_t kIdleSeconds = 3 * 3600;

// Age of the hashes of files, which are read again then.
constexpr std::time_t kHashSeconds = 30 * 24 * 3600;

bool IsOlder(const timespec& touched, std::time_t seconds) {
  return ::time(nullptr) - touched.tv_sec > seconds;
}
bool IsIdle(const timespec& touched) { return IsOlder(touched, kIdleSeconds); }

// Removes a file that is locked as long as a process uses it, if none does. Locked while it goes,
// so that a process that has opened it meanwhile sees by its lock that it is gone.
void RemoveUnlocked(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd.valid() && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
}

// Calls `visit` with path, name and times of every regular file.
void ForEachFile(const std::string& directory,
                 const std::function<void(const std::string& path, const std::string& name,
                                          const struct stat& info)>& visit) {
  std::error_code error;
  for (auto it = fs::directory_iterator(directory, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string path = it->path().string();
    struct stat info = {};
    if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    visit(path, it->path().filename().string(), info);
  }
}

}  // namespace

std::string ToHex(std::uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// Without dots, which end it within a file's name.
std::string HostLabel() {
  char name[65] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  std::string label = name;
  for (char& c : label)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-') c = '_';
  return label;
}

std::string HashMemoryPath(const std::string& directory, std::uint64_t files) {
  return directory + "/files-" + ToHex(files) + "-" + HostLabel() + ".hashes";
}

std::string TemporaryEntryName(const std::string& entry) {
  static std::atomic<unsigned> counter{0};
  return entry + ".tmp." + HostLabel() + "." + std::to_string(::getpid()) + "." +
         std::to_string(++counter);
}

bool IsThere(const std::string& path) {
  // Opening the folder makes a client of NFS forget which names it knew not to be in it.
  const std::string folder = fs::path(path).parent_path().string();
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return ::access(path.c_str(), F_OK) == 0;
}

void MarkUsed(int fd) {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW},
                             {.tv_sec = 0, .tv_nsec = UTIME_OMIT}};
  (void)::futimens(fd, times);
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

void RemoveLeftovers(const std::string& directory) {
  const std::string own = HostLabel() + ".";
  ForEachFile(directory,
              [&](const std::string& path, const std::string& name, const struct stat& info) {
                const std::size_t temporary = name.find(kTemporary);
                if (temporary != std::string::npos) {
                  // Locks of this host's processes are seen here, whatever the file system.
                  const std::string rest = name.substr(temporary + std::string(kTemporary).size());
                  if (rest.starts_with(own) || IsIdle(info.st_mtim)) RemoveUnlocked(path);
                  return;
                }
                if (name.starts_with("files-") && IsOlder(info.st_mtim, kHashSeconds))
                  RemoveUnlocked(path);
                // What belongs to an entry that is gone.
                const std::size_t end = name.find(".tokens.");
                if (end == std::string::npos || !IsIdle(info.st_mtim)) return;
                const std::string entry = directory + "/" + name.substr(0, end) + ".tokens";
                if (!IsThere(entry)) RemoveUnlocked(path);
              });
}

void RemoveOldEntries(const std::string& directory, std::uint64_t files) {
  std::vector<std::pair<timespec, std::string>> entries;
  ForEachFile(directory,
              [&](const std::string& path, const std::string& name, const struct stat& info) {
                if (!name.ends_with(".tokens")) return;
                const std::optional<CacheEntryId> id = ReadEntryId(path);
                if (id && id->files == files) entries.emplace_back(info.st_atim, path);
              });
  const auto later = [](const auto& a, const auto& b) {
    return std::pair(a.first.tv_sec, a.first.tv_nsec) > std::pair(b.first.tv_sec, b.first.tv_nsec);
  };
  std::sort(entries.begin(), entries.end(), later);
  for (std::size_t i = kKeptEntries; i < entries.size(); ++i)
    if (IsIdle(entries[i].first)) RemoveUnlocked(entries[i].second);
}

}  // namespace muster
