#include "trainer/comm/interrupt.h"

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
  std::vector<pollfd> entries = {{fd, events, 0}};
  return AwaitAny(entries, deadline);
}

Status Interrupt::AwaitAny(std::vector<pollfd>& entries, Deadline deadline) const {
  entries.push_back({event_.get(), POLLIN, 0});
  int ready = 0;
  do {
    const timespec left = ToTimespec(deadline.Remaining());
    ready = ::ppoll(entries.data(), entries.size(), &left, nullptr);
  } while (ready < 0 && errno == EINTR);
  const int error = errno;
  const bool raised = entries.back().revents != 0;
  entries.pop_back();
  if (ready < 0) return ErrnoStatus(error, "ppoll");
  if (ready == 0) return DeadlineExceeded("no answer in time");
  return raised ? Cancelled("the wait was called off") : OkStatus();
}

}  // namespace muster
