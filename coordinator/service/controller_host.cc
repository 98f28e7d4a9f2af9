#include "coordinator/service/controller_host.h"

#include <utility>

#include "common/telemetry/log.h"

namespace muster {
namespace {

std::vector<EventRecord> EventsOf(const std::vector<StoreOperation>& operations) {
  std::vector<EventRecord> events;
  for (const StoreOperation& operation : operations) {
    if (const auto* append = std::get_if<AppendEvent>(&operation)) events.push_back(append->event);
  }
  return events;
}

// The log tells the same story as the events.
void LogEvents(const std::vector<EventRecord>& events) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::info, spdlog::level::warn,
                                                   spdlog::level::err};
  for (const EventRecord& event : events) {
    const auto level = kLevels[static_cast<int>(event.severity)];
    if (event.job.empty()) {
      Log().log(level, "{}: {}", event.kind, event.message);
    } else {
      Log().log(level, "job {} g{} {}: {}", event.job.value, event.generation, event.kind,
                event.message);
    }
  }
}

}  // namespace

ControllerHost::ControllerHost(EventLoop& loop, Store& store, EffectOutlet& outlet,
                               ControllerOptions options, const Clock& clock)
    : loop_(loop),
      store_(store),
      outlet_(outlet),
      clock_(clock),
      controller_(std::move(options)),
      timer_(loop) {}

Now ControllerHost::ReadClock() const { return {clock_.Now(), clock_.UnixMillis()}; }

Status ControllerHost::Restore() {
  MUSTER_ASSIGN_OR_RETURN(StoredState state, store_.Load());
  Take(controller_.Restore(std::move(state), ReadClock()));
  ArmTimer();
  return OkStatus();
}

void ControllerHost::Handle(const Event& event) {
  if (closed_) return;
  Take(controller_.Handle(event, ReadClock()));
  ArmTimer();
}

void ControllerHost::Submit(SubmitRequested event, ReplyHandler handler) {
  HandleRequest(std::move(event), std::move(handler));
}

void ControllerHost::Cancel(CancelRequested event, ReplyHandler handler) {
  HandleRequest(std::move(event), std::move(handler));
}

void ControllerHost::Suspend(SuspendRequested event, ReplyHandler handler) {
  HandleRequest(std::move(event), std::move(handler));
}

void ControllerHost::Resume(ResumeRequested event, ReplyHandler handler) {
  HandleRequest(std::move(event), std::move(handler));
}

void ControllerHost::Drain(DrainRequested event, ReplyHandler handler) {
  HandleRequest(std::move(event), std::move(handler));
}

void ControllerHost::Undrain(UndrainRequested event, ReplyHandler handler) {
  HandleRequest(std::move(event), std::move(handler));
}

void ControllerHost::InjectFault(InjectFaultRequested event, ReplyHandler handler) {
  HandleRequest(std::move(event), std::move(handler));
}

void ControllerHost::Verify(VerifyRequested event, ReplyHandler handler) {
  HandleRequest(std::move(event), std::move(handler));
}

template <typename Request>
void ControllerHost::HandleRequest(Request event, ReplyHandler handler) {
  if (closed_ || handlers_.size() >= kMaxPendingRequests) {
    ++refused_requests_;
    return handler(Reply{.status = closed_ ? Unavailable("the coordinator is shutting down")
                                           : ResourceExhausted("too many requests wait for the "
                                                               "coordinator's disk; try again")});
  }
  event.request = next_request_++;
  handlers_.emplace(event.request, std::move(handler));
  Handle(std::move(event));
}

void ControllerHost::Take(Effects effects) {
  if (effects.empty()) return;
  const std::uint64_t number = next_number_++;
  std::vector<StoreOperation> operations = std::move(effects.store);
  std::vector<EventRecord> events = EventsOf(operations);
  LogEvents(events);
  const bool durable = operations.empty();
  pending_.push_back({number, durable, std::move(effects), std::move(events), {}});
  if (durable) return ReleaseDurable();
  store_.Commit(std::move(operations), [this, number](const Status& status) {
    loop_.Post([this, number, status] { OnCommitted(number, status); });
  });
}

void ControllerHost::AfterDurable(DurableHandler function) {
  if (closed_) return function(Unavailable("the coordinator is shutting down"));
  if (pending_.empty()) return function(OkStatus());
  pending_.push_back({next_number_++, true, {}, {}, std::move(function)});
}

void ControllerHost::OnCommitted(std::uint64_t number, const Status& status) {
  if (closed_ || failed_) return;
  if (!status.ok()) {
    failed_ = true;
    return outlet_.OnStoreFailed(status);
  }
  // Numbers are consecutive, and what is released leaves from the front.
  pending_[number - pending_.front().number].durable = true;
  ReleaseDurable();
}

void ControllerHost::ReleaseDurable() {
  while (!pending_.empty() && pending_.front().durable && !closed_ && !failed_) {
    Pending next = std::move(pending_.front());
    pending_.pop_front();
    if (next.function) {
      next.function(OkStatus());
    } else {
      Release(next.effects);
      if (!next.events.empty()) outlet_.OnEvents(next.events);
    }
  }
}

void ControllerHost::Release(Effects& effects) {
  for (const WorkerSend& send : effects.sends) outlet_.SendToWorker(send);
  for (const CloseSession& close : effects.closes) outlet_.CloseWorker(close);
  for (const Reply& reply : effects.replies) {
    if (auto handler = handlers_.extract(reply.request)) handler.mapped()(reply);
  }
  if (!effects.changed.empty()) outlet_.OnJobsChanged(effects.changed);
  for (const Observation& observation : effects.observations) outlet_.OnObservation(observation);
}

void ControllerHost::ArmTimer() {
  const std::optional<TimePoint> due = controller_.NextDeadline();
  if (due == armed_) return;
  armed_ = due;
  if (!due) return timer_.Cancel();
  timer_.StartAt(*due, [this] {
    armed_.reset();
    Handle(Tick{});
  });
}

void ControllerHost::Close(const Status& reason) {
  if (closed_) return;
  closed_ = true;
  timer_.Cancel();
  auto handlers = std::exchange(handlers_, {});
  for (auto& [request, handler] : handlers) handler(Reply{.request = request, .status = reason});
  auto pending = std::exchange(pending_, {});
  for (Pending& item : pending) {
    if (item.function) item.function(reason);
  }
}

}  // namespace muster
