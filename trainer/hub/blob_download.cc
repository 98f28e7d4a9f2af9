#include "trainer/hub/blob_download.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "common/base/byte_size.h"
#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/unique_fd.h"
#include "trainer/hub/hub_errors.h"
#include "trainer/hub/hub_files.h"

namespace muster {
namespace {

constexpr int kLockPollMs = 100;
// Less than that is no progress: a terabyte of it would be asked for some ten million times.
constexpr std::int64_t kProgressBytes = 64 << 10;

void Pause(Duration duration) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(duration).count();
  ::poll(nullptr, 0, static_cast<int>(ms));
}

bool IsThere(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// -1: it is not there.
std::int64_t SizeOf(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  return error ? -1 : static_cast<std::int64_t>(size);
}

std::string PartialPath(const BlobPlace& place) { return place.blob + ".incomplete"; }

Status StalledLock(const BlobSource& source, const BlobPlace& place) {
  const auto minutes = std::chrono::duration_cast<std::chrono::minutes>(place.lock_timeout);
  return Unavailable(source.what + ": another process holds " + place.lock + " and has fetched " +
                     "nothing for " + std::to_string(minutes.count()) +
                     " min; end that process, or if there is none on any host (some network disks "
                     "keep the lock of a host that is gone), remove that file");
}

// Waits as long as another process has it and gets on: its lock goes when that process does.
Result<UniqueFd> TakeLock(const BlobSource& source, const BlobPlace& place,
                          const DownloadHooks& hooks) {
  UniqueFd fd(::open(place.lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + place.lock);
  GrowthWatch watch(place.lock_timeout, SystemClock().Now());
  for (bool told = false; ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoStatus(errno, "lock " + place.lock);
    if (!told) hooks.on_note(source.what + ": waiting for another process that fetches it");
    told = true;
    if (watch.HasStalled(SizeOf(PartialPath(place)), SystemClock().Now()))
      return StalledLock(source, place);
    Pause(std::chrono::milliseconds(kLockPollMs));
  }
  return fd;
}

// ETAG.incomplete, and what is known of its contents.
class PartialFile {
 public:
  PartialFile(const BlobSource& source, const BlobPlace& place, const DownloadHooks& hooks)
      : source_(source), path_(PartialPath(place)), hooks_(hooks) {}

  Status Open() {
    fd_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!fd_.valid()) return ErrnoStatus(errno, "create " + path_);
    struct stat status = {};
    if (::fstat(fd_.get(), &status) != 0) return ErrnoStatus(errno, "stat " + path_);
    Begin(0);
    if (source_.size >= 0 && status.st_size > source_.size) return Truncate();
    MUSTER_RETURN_IF_ERROR(check_->AddFile(path_, status.st_size));
    size_ = status.st_size;
    hooks_.on_bytes(size_);
    return CheckRoom();
  }

  std::int64_t size() const { return size_; }
  bool is_complete() const { return source_.size >= 0 && size_ == source_.size; }

  Status Truncate() {
    if (::ftruncate(fd_.get(), 0) != 0) return ErrnoStatus(errno, "truncate " + path_);
    hooks_.on_bytes(-size_);
    Begin(0);
    return OkStatus();
  }

  Status Append(std::string_view bytes) {
    if (source_.size >= 0 && size_ + static_cast<std::int64_t>(bytes.size()) > source_.size) {
      return DataLoss(source_.what + ": the Hub sends more than the " +
                      std::to_string(source_.size) + " bytes it announced");
    }
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), size_);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "write " + path_);
      check_->Add(bytes.substr(0, static_cast<std::size_t>(n)));
      bytes.remove_prefix(static_cast<std::size_t>(n));
      size_ += n;
      hooks_.on_bytes(n);
    }
    return OkStatus();
  }

  // Under its real name, if it is what the ETag names. Call once after each Open or Truncate.
  Status Publish(const std::string& blob) {
    if (!check_->Matches()) {
      return DataLoss(source_.what + ": what came is not what the Hub announced (checksum " +
                      source_.etag + ")");
    }
    if (::fsync(fd_.get()) != 0) return ErrnoStatus(errno, "fsync " + path_);
    if (::rename(path_.c_str(), blob.c_str()) != 0) return ErrnoStatus(errno, "rename " + path_);
    return SyncDirectory(std::filesystem::path(blob).parent_path().string());
  }

 private:
  void Begin(std::int64_t size) {
    size_ = size;
    check_.emplace(source_.etag, source_.size);
  }

  Status CheckRoom() const {
    struct statvfs disk = {};
    if (source_.size < 0 || ::fstatvfs(fd_.get(), &disk) != 0) return OkStatus();
    const auto free =
        static_cast<std::int64_t>(disk.f_bavail) * static_cast<std::int64_t>(disk.f_frsize);
    if (source_.size - size_ <= free) return OkStatus();
    return ResourceExhausted(source_.what + " needs " + FormatByteSize(source_.size - size_) +
                             ", and " + FormatByteSize(free) + " are free on the disk of " + path_ +
                             "; make room, or name another place with --cache");
  }

  const BlobSource& source_;
  const std::string path_;
  const DownloadHooks& hooks_;
  UniqueFd fd_;
  std::int64_t size_ = 0;
  std::optional<ContentCheck> check_;
};

// One request for what is lacking. OK: the Hub has no more to send.
Status FetchRest(HttpClient& client, const BlobSource& source, PartialFile& file,
                 std::string* retry_after) {
  const std::int64_t offset = file.size();
  bool began = false;
  const HttpSink sink = [&](const HttpClientResponse& head, std::string_view bytes) -> Status {
    if (head.code != 200 && head.code != 206) return OkStatus();
    // The whole file came though a part was asked for.
    if (!began && head.code == 200 && offset > 0) MUSTER_RETURN_IF_ERROR(file.Truncate());
    began = true;
    return file.Append(bytes);
  };
  MUSTER_ASSIGN_OR_RETURN(
      const HttpClientResponse response,
      SendFollowing(client, {.url = source.url, .token = source.token, .offset = offset}, sink));
  *retry_after = response.Header("retry-after");
  if (response.code == 416) {
    MUSTER_RETURN_IF_ERROR(file.Truncate());
    return Unavailable(source.what + ": the Hub does not go on from byte " +
                       std::to_string(offset));
  }
  MUSTER_RETURN_IF_ERROR(HubStatus(response, source.what, source.page, !source.token.empty()));
  if (source.size >= 0 && file.size() < source.size) {
    return Unavailable(source.what + ": the connection ended after " + std::to_string(file.size()) +
                       " of " + std::to_string(source.size) + " bytes");
  }
  return OkStatus();
}

Status FetchWhole(HttpClient& client, const BlobSource& source, PartialFile& file,
                  const DownloadHooks& hooks) {
  for (int attempt = 1; !file.is_complete();) {
    const std::int64_t before = file.size();
    std::string retry_after;
    const Status status = FetchRest(client, source, file, &retry_after);
    if (status.ok()) return status;
    if (status.code() != StatusCode::kUnavailable) return status;
    // What gets on each time may break off as often as it likes.
    attempt = file.size() >= before + kProgressBytes ? 1 : attempt + 1;
    if (attempt > kMaxAttempts) return status;
    hooks.on_note(status.message() + "; trying again");
    Pause(RetryPause(attempt, retry_after));
  }
  return OkStatus();
}

}  // namespace

bool GrowthWatch::HasStalled(std::int64_t bytes, TimePoint now) {
  if (bytes != bytes_) grown_at_ = now;
  bytes_ = bytes;
  return now - grown_at_ >= timeout_;
}

Result<HttpClientResponse> SendWithRetries(HttpClient& client, const HttpClientRequest& request,
                                           const std::function<HttpSink()>& new_sink,
                                           const std::string& what, const std::string& page,
                                           const std::function<void(const std::string&)>& on_note) {
  for (int attempt = 1;; ++attempt) {
    Result<HttpClientResponse> response = SendFollowing(client, request, new_sink());
    Status status = response.status();
    std::string retry_after;
    if (response.ok()) {
      // A HEAD ends at the redirect to where the bytes are.
      if (request.head && !response->redirect.empty()) return response;
      status = HubStatus(*response, what, page, !request.token.empty());
      retry_after = response->Header("retry-after");
    }
    if (status.ok()) return response;
    if (status.code() != StatusCode::kUnavailable || attempt >= kMaxAttempts) return status;
    on_note(status.message() + "; trying again");
    Pause(RetryPause(attempt, retry_after));
  }
}

Status DownloadBlob(HttpClient& client, const BlobSource& source, const BlobPlace& place,
                    const DownloadHooks& hooks) {
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, TakeLock(source, place, hooks));
  if (IsThere(place.blob)) {
    hooks.on_bytes(source.size > 0 ? source.size : 0);
    return OkStatus();
  }
  PartialFile file(source, place, hooks);
  MUSTER_RETURN_IF_ERROR(file.Open());
  for (bool again = false;; again = true) {
    MUSTER_RETURN_IF_ERROR(FetchWhole(client, source, file, hooks));
    const Status status = file.Publish(place.blob);
    if (status.code() != StatusCode::kDataLoss) return status;
    // A part from earlier may have been damaged: once more from the beginning.
    MUSTER_RETURN_IF_ERROR(file.Truncate());
    if (again) return status;
    hooks.on_note(status.message() + "; fetching it again");
  }
}

}  // namespace muster
