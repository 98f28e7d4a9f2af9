#include "coordinator/service/log_reads.h"

#include <utility>
#include <vector>

namespace muster {

Result<std::uint64_t> LogReads::Start(SessionId session, Done done) {
  if (waiting_.size() >= kMaxWaiting) {
    return ResourceExhausted("too many log reads wait for their nodes; try again");
  }
  const std::uint64_t id = next_id_++;
  waiting_[id] = {session, SystemClock().Now() + kDeadline, std::move(done)};
  if (waiting_.size() == 1) Arm();
  return id;
}

void LogReads::Complete(SessionId session, const v1::LogChunk& chunk) {
  const auto found = waiting_.find(chunk.request_id());
  if (found == waiting_.end() || found->second.session != session) return;
  const Done done = std::move(found->second.done);
  waiting_.erase(found);
  if (chunk.error().empty()) return done(chunk);
  done(chunk.busy() ? ResourceExhausted(chunk.error()) : NotFound(chunk.error()));
}

void LogReads::FailSession(SessionId session) {
  std::vector<Done> failed;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->second.session != session) {
      ++it;
      continue;
    }
    failed.push_back(std::move(it->second.done));
    it = waiting_.erase(it);
  }
  for (const Done& done : failed) {
    done(Unavailable("the node left while its log was read; try again when it is back"));
  }
}

void LogReads::Arm() {
  if (waiting_.empty()) return timer_.Cancel();
  timer_.StartAt(waiting_.begin()->second.deadline, [this] { Expire(); });
}

void LogReads::Expire() {
  const TimePoint now = SystemClock().Now();
  while (!waiting_.empty() && waiting_.begin()->second.deadline <= now) {
    const Done done = std::move(waiting_.begin()->second.done);
    waiting_.erase(waiting_.begin());
    done(DeadlineExceeded("the node did not answer within 5 s"));
  }
  Arm();
}

}  // namespace muster
