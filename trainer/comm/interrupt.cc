#include "trainer/comm/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <ctime>

#include "common/base/check.h"

namespace muster {
namespace {

timespec ToTimespec(Duration time) {
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  return {static_cast<time_t>(nanoseconds / 1'000'000'000), nanoseconds % 1'000'000'000};
}

}  // namespace

Interrupt::Interrupt() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MUSTER_CHECK(event_.valid(), "eventfd");
}

void Interrupt::Raise() { (void)::eventfd_write(event_.get(), 1); }

void Interrupt::Clear() {
  eventfd_t value = 0;
  (void)::eventfd_read(event_.get(), &value);
}

bool Interrupt::raised() const { return !Pause(Duration::zero()); }

bool Interrupt::Pause(Duration time) const {
  const Deadline end = Deadline::After(time);
  for (;;) {
    pollfd entry{event_.get(), POLLIN, 0};
    const timespec left = ToTimespec(end.Remaining());
    const int ready = ::ppoll(&entry, 1, &left, nullptr);
    if (ready > 0) return false;
    if (ready == 0) return true;
    MUSTER_CHECK(errno == EINTR, "ppoll");
  }
}

Status Interrupt::AwaitReady(int fd, short events, Deadline deadline) const {
  for (;;) {
    pollfd entries[] = {{fd, events, 0}, {event_.get(), POLLIN, 0}};
    const timespec left = ToTimespec(deadline.Remaining());
    const int ready = ::ppoll(entries, 2, &left, nullptr);
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "ppoll");
    if (ready > 0 && entries[1].revents != 0) return Cancelled("the wait was called off");
    if (ready > 0) return OkStatus();
    if (ready == 0) return DeadlineExceeded("no answer in time");
  }
}

}  // namespace muster
