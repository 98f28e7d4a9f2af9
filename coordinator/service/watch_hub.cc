#include "coordinator/service/watch_hub.h"

#include <algorithm>
#include <utility>

#include "common/rpc/grpc_status.h"
#include "coordinator/service/conversions.h"

namespace muster {

void WatchStream::Write(v1::WatchUpdate update) {
  std::lock_guard lock(mutex_);
  if (ending_) return;
  update_ = std::move(update);
  writing_ = true;
  StartWrite(&update_);
}

void WatchStream::End(const Status& status) {
  std::lock_guard lock(mutex_);
  if (ending_) return;
  ending_ = true;
  final_status_ = status;
  if (!writing_) FinishLocked();
}

void WatchStream::FinishLocked() {
  if (std::exchange(finished_, true)) return;
  Finish(ToGrpcStatus(final_status_));
}

void WatchStream::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  writing_ = false;
  if (!ok && !ending_) {
    ending_ = true;
    final_status_ = Cancelled("the watcher has gone");
  }
  if (ending_) return FinishLocked();
  loop_.Post([self = self_] { self->hub_.OnWritten(self.get()); });
}

void WatchStream::OnDone() {
  loop_.Post([self = std::move(self_)] { self->hub_.OnEnded(self.get()); });
}

void WatchHub::Add(const std::shared_ptr<WatchStream>& stream, const v1::WatchRequest& request) {
  if (!closed_.ok()) return stream->End(closed_);
  if (watchers_.size() >= kMaxWatchers) {
    return stream->End(ResourceExhausted("too many watchers; use get instead"));
  }
  const Result<JobView> view = runtime_.controller().FindJob(request.job());
  if (!view.ok()) return stream->End(view.status());
  Watcher& watcher = watchers_[stream.get()];
  watcher.stream = stream;
  watcher.job = view->record->id;
  watcher.after_seq = request.after_seq();
  Flush();
}

void WatchHub::OnJobsChanged(const std::vector<JobId>& jobs) {
  for (auto& [stream, watcher] : watchers_) {
    if (std::find(jobs.begin(), jobs.end(), watcher.job) != jobs.end()) watcher.dirty = true;
  }
  Flush();
}

void WatchHub::OnWritten(const WatchStream* stream) {
  const auto found = watchers_.find(stream);
  if (found == watchers_.end()) return;
  found->second.busy = false;
  Flush();
}

void WatchHub::Flush() {
  const TimePoint now = SystemClock().Now();
  TimePoint next = TimePoint::max();
  for (auto& [stream, watcher] : watchers_) {
    if (!watcher.dirty || watcher.busy) continue;
    if (watcher.next_allowed <= now) {
      Update(watcher, now);
    } else {
      next = std::min(next, watcher.next_allowed);
    }
  }
  if (next != TimePoint::max()) timer_.StartAt(next, [this] { Flush(); });
}

void WatchHub::Update(Watcher& watcher, TimePoint now) {
  watcher.dirty = false;
  const Result<JobView> view = runtime_.controller().FindJob(watcher.job.value);
  if (!view.ok()) return watcher.stream->End(view.status());
  watcher.busy = true;
  watcher.next_allowed = now + kInterval;
  v1::WatchUpdate update = Compose(watcher, *view, now);
  const bool last = IsTerminal(view->record->state) && !watcher.dirty;  // it has the last event
  runtime_.AfterDurable(
      [stream = watcher.stream, last, update = std::move(update)](const Status& durable) mutable {
        if (!durable.ok()) return stream->End(durable);
        stream->Write(std::move(update));
        if (last) stream->End(OkStatus());
      });
}

v1::WatchUpdate WatchHub::Compose(Watcher& watcher, const JobView& view, TimePoint now) const {
  v1::WatchUpdate update;
  *update.mutable_job() = ToProto(view, JobDetail::kFull, now);
  const auto& events = runtime_.controller().Events();
  auto event = std::upper_bound(
      events.begin(), events.end(), watcher.after_seq,
      [](std::uint64_t seq, const EventRecord& record) { return seq < record.seq; });
  for (; event != events.end() && update.events_size() < kMaxEventsPerUpdate; ++event) {
    watcher.after_seq = event->seq;
    if (event->job == watcher.job) *update.add_events() = ToProto(*event);
  }
  // The rest goes with the next message.
  if (event != events.end()) watcher.dirty = true;
  return update;
}

void WatchHub::CloseRevoked(const Authenticator& authenticator) {
  for (const auto& [stream, watcher] : watchers_) {
    const Status status = CheckMayStay(watcher, authenticator);
    if (!status.ok()) watcher.stream->End(status);
  }
}

Status WatchHub::CheckMayStay(const Watcher& watcher, const Authenticator& authenticator) const {
  MUSTER_RETURN_IF_ERROR(authenticator.CheckMayStay(watcher.stream->peer()));
  MUSTER_RETURN_IF_ERROR(runtime_.controller().access().CheckActor(watcher.stream->actor()));
  return CheckMaySee(watcher);
}

Status WatchHub::CheckMaySee(const Watcher& watcher) const {
  const Controller& controller = runtime_.controller();
  const Result<JobView> view = controller.FindJob(watcher.job.value);
  if (!view.ok()) return OkStatus();  // the next update ends it
  const std::string queue = QueueName(view->record->queue);
  if (controller.access().MaySee(watcher.stream->actor(), {view->record->owner, queue}))
    return OkStatus();
  return PermissionDenied("you may not see this job any more; muster whoami shows your roles");
}

void WatchHub::CloseAll(const Status& reason) {
  closed_ = reason;
  timer_.Cancel();
  for (auto& [stream, watcher] : watchers_) watcher.stream->End(reason);
}

}  // namespace muster
