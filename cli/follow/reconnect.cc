#include "cli/follow/reconnect.h"

namespace muster {
namespace {

constexpr auto kTimeout = std::chrono::seconds(30);
constexpr auto kPause = std::chrono::milliseconds(200);

}  // namespace

void Reconnect::Answered() {
  if (lost_at_) notice_("reconnected");
  lost_at_.reset();
  answered_ = true;
}

bool Reconnect::Lost(const Status& status) {
  if (!status.ok() && status.code() != StatusCode::kUnavailable) return false;
  if (answered_ && !lost_at_) lost_at_ = SystemClock().Now();
  context_.client.Disconnect();
  return true;
}

Status Reconnect::Pause(const Status& status, TimePoint deadline) {
  const bool first = !lost_at_;
  if (!answered_ || !Lost(status)) return status;
  if (first) notice_("the coordinator does not answer; the job keeps training; reconnecting ...");
  const TimePoint now = SystemClock().Now();
  if (now - *lost_at_ >= kTimeout)
    return status.ok() ? Unavailable("the coordinator closed the stream") : status;
  if (now >= deadline) return DeadlineExceeded("the job has not ended");
  if (context_.interrupt().WaitFor(kPause)) return Cancelled("interrupted");
  return OkStatus();
}

}  // namespace muster
