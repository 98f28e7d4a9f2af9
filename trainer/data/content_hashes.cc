#include "trainer/data/content_hashes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

#include <xxhash.h>

#include "common/base/files.h"
#include "common/base/unique_fd.h"
#include "trainer/data/cache_folder.h"

namespace muster {
namespace {

constexpr std::size_t kReadBytes = 4 << 20;
constexpr std::string_view kFirstLine = "muster hashes 1\n";
constexpr std::string_view kCheck = "check ";

using Known = std::map<FileIdentity, std::uint64_t>;

std::string ToText(const Known& known) {
  std::string text(kFirstLine);
  for (const auto& [file, hash] : known) {
    for (const std::uint64_t number : {file.device, file.inode})
      text += std::to_string(number) + " ";
    for (const std::int64_t number : {file.bytes, file.modified_ns, file.changed_ns})
      text += std::to_string(number) + " ";
    text += ToHex(hash) + "\n";
  }
  const std::uint64_t check = XXH3_64bits(text.data(), text.size());
  return text.append(kCheck) + ToHex(check) + "\n";
}

// Empty where the text is not what ToText has made.
Known FromText(const std::string& text) {
  Known known;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && !line.starts_with(kCheck)) {
    std::istringstream words(line);
    FileIdentity file;
    std::uint64_t hash = 0;
    words >> file.device >> file.inode >> file.bytes >> file.modified_ns >> file.changed_ns >>
        std::hex >> hash;
    known[file] = hash;
  }
  return ToText(known) == text ? known : Known();
}

// The hashes of some files at one start.
class Hashing {
 public:
  Hashing(const std::vector<std::string>& paths, const HashMemory& memory, const TurnWait& wait)
      : memory_(memory), wait_(wait) {
    for (const std::string& path : paths) files_.push_back({.path = path});
  }

  Result<std::vector<FileContent>> Run() {
    bool settled = true;
    for (FileContent& file : files_) {
      MUSTER_ASSIGN_OR_RETURN(file.identity, IdentityOf(file.path));
      settled = settled && IsSettled(file.identity);
    }
    if (!memory_.path.empty() && settled) {
      MUSTER_RETURN_IF_ERROR(HashInTurn());
    } else {
      MUSTER_RETURN_IF_ERROR(HashUnknown({}));
    }
    return std::move(files_);
  }

 private:
  bool IsSettled(const FileIdentity& file) const {
    const std::int64_t last = std::max(file.modified_ns, file.changed_ns) / 1'000'000;
    return SystemClock().UnixMillis() - last >=
           std::chrono::duration_cast<std::chrono::milliseconds>(memory_.settled).count();
  }

  Status HashInTurn() {
    if (AllKnown()) return OkStatus();
    Result<FileTurn> turn = FileTurn::Open(memory_.path + ".lock");
    if (turn.ok() && turn->Await([this] { return AllKnown(); }, wait_) == Turn::kDone)
      return OkStatus();
    MUSTER_RETURN_IF_ERROR(HashUnknown([&turn] {
      if (turn.ok()) turn->Touch();
    }));
    Known known;
    for (const FileContent& file : files_) known[file.identity] = file.hash;
    // A folder that cannot be written is reported for the entry that should lie in it.
    (void)WriteFileAtomically(memory_.path, ToText(known));
    return OkStatus();
  }

  // Takes over what is remembered; whether that is all.
  bool AllKnown() {
    const Result<std::string> text = ReadFile(memory_.path);
    const Known known = text.ok() ? FromText(*text) : Known();
    known_.clear();
    for (FileContent& file : files_) {
      const auto found = known.find(file.identity);
      known_.push_back(found != known.end());
      if (found != known.end()) file.hash = found->second;
    }
    return std::find(known_.begin(), known_.end(), false) == known_.end();
  }

  Status HashUnknown(const std::function<void()>& on_part) {
    known_.resize(files_.size(), false);
    for (std::size_t i = 0; i < files_.size(); ++i)
      if (!known_[i]) MUSTER_RETURN_IF_ERROR(HashFile(on_part, &files_[i]));
    return OkStatus();
  }

  Status HashFile(const std::function<void()>& on_part, FileContent* file) const {
    const UniqueFd fd(::open(file->path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) return ErrnoStatus(errno, "open " + file->path);
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(),
                                                                        &XXH3_freeState);
    XXH3_64bits_reset(hash.get());
    std::vector<char> buffer(kReadBytes);
    // One that grows as fast as it is read has no end, and has changed.
    for (std::int64_t bytes = 0; bytes <= file->identity.bytes;) {
      const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "read " + file->path);
      if (n == 0) break;
      bytes += n;
      XXH3_64bits_update(hash.get(), buffer.data(), static_cast<std::size_t>(n));
      if (on_part) on_part();
      if (wait_.on_read) wait_.on_read();
    }
    file->hash = XXH3_64bits_digest(hash.get());
    return CheckUnchanged({*file});
  }

  const HashMemory& memory_;
  const TurnWait& wait_;
  std::vector<FileContent> files_;
  std::vector<bool> known_;
};

}  // namespace

Result<std::vector<FileContent>> HashFiles(const std::vector<std::string>& paths,
                                           const HashMemory& memory, const TurnWait& wait) {
  return Hashing(paths, memory, wait).Run();
}

Status CheckUnchanged(const std::vector<FileContent>& files) {
  for (const FileContent& file : files) {
    const Result<FileIdentity> now = IdentityOf(file.path);
    if (!now.ok()) return Aborted("cannot be read any more: " + now.status().message());
    if (*now != file.identity) return Aborted(file.path + " has changed while it was read");
  }
  return OkStatus();
}

}  // namespace muster
