// Interrupt: a word from any thread that ends the waits of another, whatever they wait for.
//
// It is an eventfd, so that one poll covers it beside a socket. Raised it stays raised until Clear.
// Thread-safe; outlives the waits.
#pragma once

#include <poll.h>

#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace muster {

class Interrupt {
 public:
  Interrupt();

  void Raise();
  void Clear();
  bool raised() const;

  // False as soon as it is raised.
  bool Pause(Duration time) const;
  // Until `fd` is ready for `events` of poll, has failed or was closed by its peer. kCancelled when
  // raised, kDeadlineExceeded.
  Status AwaitReady(int fd, short events, Deadline deadline) const;
  // The same for several at once: their `revents` say which. Those with a negative descriptor are
  // passed over.
  Status AwaitAny(std::vector<pollfd>& entries, Deadline deadline) const;

 private:
  const UniqueFd event_;
};

}  // namespace muster
