// FileTurn: of the processes that want the same file made, one makes it while the others wait.
//
// The turn is a lock on a file of its own (flock), which ends with its process. Its holder touches
// that file as it gets on; who waits takes one that has stood still for a long time for stuck.
// Between hosts both work as far as their file system passes locks and times on; where it knows no
// locks, each has the turn at once.
//
// Owned and used by one thread. Leaves the lock's file behind, empty.
#pragma once

#include <time.h>

#include <functional>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

// Callbacks for the process that waits, in its thread; may be empty.
struct TurnWait {
  std::function<void()> on_read = {};  // the one at work has got on
  // Whether it has or not, every few milliseconds. It may take as long as it likes: that time does
  // not count against `timeout`, since the one at work may be held up by the same thing.
  std::function<void()> on_wait = {};
  // With one that stands still. Clients of a network file system see times up to a minute late, and
  // a slow disk takes its time to sync.
  Duration timeout = std::chrono::minutes(5);
};

enum class Turn {
  kOwn,    // no other process does it
  kDone,   // there is nothing left to do
  kStuck,  // another process has the turn, and stands still
};

class FileTurn {
 public:
  // Makes the file unless it is there; its folder exists.
  static Result<FileTurn> Open(const std::string& path);

  // Until it is this process's turn, or there is nothing to do any more, as `done` says. `done` is
  // asked about once in a second, and before kOwn is returned. Bounded by `timeout`.
  Turn Await(const std::function<bool()>& done, const TurnWait& wait);
  // Of who has the turn: it gets on.
  void Touch() const;

 private:
  FileTurn(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  // Whether the file was touched since the last call.
  bool HasMoved();

  std::string path_;
  UniqueFd fd_;
  timespec seen_ = {};
};

}  // namespace muster
