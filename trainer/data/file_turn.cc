#include "trainer/data/file_turn.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace muster {
namespace {

constexpr int kPauseMillis = 50;
// A look may cost a question to a file server, for each process that waits.
constexpr Duration kBetweenLooks = std::chrono::seconds(1);

}  // namespace

Result<FileTurn> FileTurn::Open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  return FileTurn(path, std::move(fd));
}

Turn FileTurn::Await(const std::function<bool()>& done, const TurnWait& wait) {
  const Duration between = std::min<Duration>(kBetweenLooks, wait.timeout / 4);
  TimePoint moved = SystemClock().Now();
  TimePoint next_look = moved;
  while (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    // A file system without locks.
    if (errno != EWOULDBLOCK && errno != EINTR) break;
    if (SystemClock().Now() >= next_look) {
      if (done()) return Turn::kDone;
      if (HasMoved()) {
        moved = SystemClock().Now();
        if (wait.on_read) wait.on_read();
      }
      next_look = SystemClock().Now() + between;
    }
    if (wait.on_wait) {
      const TimePoint before = SystemClock().Now();
      wait.on_wait();
      moved += SystemClock().Now() - before;
    }
    if (SystemClock().Now() - moved > wait.timeout) return Turn::kStuck;
    ::poll(nullptr, 0, kPauseMillis);
  }
  if (done()) return Turn::kDone;
  Touch();
  return Turn::kOwn;
}

void FileTurn::Touch() const { (void)::futimens(fd_.get(), nullptr); }

// By opening it anew: a client of NFS may show the times of an open file as they were a minute ago.
bool FileTurn::HasMoved() {
  const UniqueFd fresh(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info = {};
  if (::fstat(fresh.valid() ? fresh.get() : fd_.get(), &info) != 0) return false;
  const bool moved = info.st_mtim.tv_sec != seen_.tv_sec || info.st_mtim.tv_nsec != seen_.tv_nsec;
  seen_ = info.st_mtim;
  return moved;
}

}  // namespace muster
