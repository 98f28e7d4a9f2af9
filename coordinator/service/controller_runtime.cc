#include "coordinator/service/controller_runtime.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "common/base/failpoint.h"
#include "coordinator/access/user_file.h"
#include "coordinator/queues/queue_file.h"

namespace muster {
namespace {

std::vector<EventRecord> EventsOf(const std::vector<StoreOperation>& operations) {
  std::vector<EventRecord> events;
  for (const StoreOperation& operation : operations) {
    if (const auto* append = std::get_if<AppendEvent>(&operation)) events.push_back(append->event);
  }
  return events;
}

}  // namespace

ControllerRuntime::ControllerRuntime(LoopHandle loop, Store& store, EffectSink& sink,
                                     ControllerOptions options, const Clock& clock,
                                     RuntimeLimits limits)
    : loop_(std::move(loop)),
      store_(store),
      sink_(sink),
      clock_(clock),
      limits_(limits),
      controller_(std::move(options)) {}

Now ControllerRuntime::ReadClock() const { return {clock_.Now(), clock_.UnixMillis()}; }

Status ControllerRuntime::Restore() {
  MUSTER_ASSIGN_OR_RETURN(StoredState state, store_.Load());
  Failpoint("start.loaded");
  MUSTER_RETURN_IF_ERROR(ParseStoredQueues(state.queues.version, state.queues.yaml).status());
  MUSTER_RETURN_IF_ERROR(ParseStoredUsers(state.users.version, state.users.yaml).status());
  Take(controller_.Restore(std::move(state), ReadClock()));
  Failpoint("start.restored");
  ArmTimer();
  return OkStatus();
}

void ControllerRuntime::Handle(Event event, std::function<void()> taken) {
  if (closed_) return;
  if (HoldsBackTooMuch() || !waiting_.empty()) return Wait(std::move(event), std::move(taken));
  HandleNow(event);
  if (taken) taken();
}

void ControllerRuntime::HandleNow(const Event& event) {
  Take(controller_.Handle(event, ReadClock()));
  ArmTimer();
}

// Bounded: a stream has one message under way, and a session that has come and gone in the meantime
// leaves nothing; its worker repeats everything. The next event replaces a Tick.
void ControllerRuntime::Wait(Event event, std::function<void()> taken) {
  if (std::holds_alternative<Tick>(event)) return;
  const auto* gone = std::get_if<WorkerStreamClosed>(&event);
  if (gone != nullptr && ForgetWhole(gone->session)) return;
  if (waiting_.empty()) sink_.OnDiskBehind(uncommitted_, held_messages_);
  waiting_.push_back({std::move(event), std::move(taken)});
}

// False, and nothing is dropped, if the session had begun before.
bool ControllerRuntime::ForgetWhole(SessionId session) {
  const auto began = [session](const Waiting& item) {
    const auto* hello = std::get_if<WorkerHello>(&item.event);
    return hello != nullptr && hello->session == session;
  };
  if (std::ranges::none_of(waiting_, began)) return false;
  std::erase_if(waiting_, [&](const Waiting& item) {
    const auto* said = std::get_if<WorkerMessageReceived>(&item.event);
    return began(item) || (said != nullptr && said->session == session);
  });
  return true;
}

void ControllerRuntime::HandleWaiting() {
  while (!waiting_.empty() && !HoldsBackTooMuch() && !closed_ && !failed_) {
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    HandleNow(next.event);
    if (next.taken) next.taken();
  }
  // The timer may have fired in the meantime.
  if (!closed_ && waiting_.empty()) ArmTimer();
}

// Bounded if it must wait: there are no more handlers than that, and while an event waits, new
// requests are refused.
void ControllerRuntime::Forget(RequestId request) {
  if (handlers_.erase(request) > 0) Handle(CallerGone{request});
}

// Calls `handler` and returns 0 if the request is refused.
RequestId ControllerRuntime::Admit(ReplyHandler handler) {
  if (const Status room = store_.CheckRoom(); !room.ok() && !closed_) {
    ++refused_requests_;
    handler(Reply{.status = room});
    return 0;
  }
  const bool full = handlers_.size() >= limits_.requests || uncommitted_ >= limits_.uncommitted ||
                    HoldsBackTooMuch() || !waiting_.empty();
  if (closed_ || full) {
    ++refused_requests_;
    handler(Reply{.status = closed_ ? Unavailable("the coordinator is shutting down")
                                    : ResourceExhausted("too much waits for the "
                                                        "coordinator's disk; try again")});
    return 0;
  }
  handlers_.emplace(next_request_, std::move(handler));
  return next_request_++;
}

void ControllerRuntime::Take(Effects effects) {
  Failpoint("decision.made");
  sink_.OnDecided(effects);
  if (effects.higher_epoch > 0) sink_.OnHigherEpoch(std::exchange(effects.higher_epoch, 0));
  const std::vector<JobId> recalls = std::exchange(effects.recalls, {});
  Commit(std::move(effects));
  // They are to see what was decided in the same step.
  for (const JobId& job : recalls) ReadArchived(job);
}

void ControllerRuntime::Commit(Effects effects) {
  effects.observations.clear();
  if (effects.empty()) return;
  SendEager(&effects.sends);
  Failpoint("decision.eager");
  std::vector<StoreOperation> operations = std::exchange(effects.store, {});
  std::vector<EventRecord> events = EventsOf(operations);
  HoldBack(std::move(effects), std::move(events), operations.empty());
  if (operations.empty()) return ReleaseDurable();
  ++uncommitted_;
  // On the store's thread, perhaps when this runtime is gone: then the loop no longer runs.
  store_.Commit(std::move(operations),
                [this, post = loop_.post, number = pending_.back().number](const Status& status) {
                  post([this, number, status] { OnCommitted(number, status); });
                });
  Failpoint("decision.queued");
}

void ControllerRuntime::ReadArchived(const JobId& job) {
  store_.ReadArchive(
      {.job = job}, [this, post = loop_.post, job](Result<std::vector<ArchivedRecords>> read) {
        auto event = std::make_shared<ArchivedJobRead>(
            ArchivedJobRead{job, NotFound("job " + job.value + " was deleted from the archive")});
        if (!read.ok()) {
          event->records = read.status();
        } else if (!read->empty()) {
          event->records = std::move(read->front());
        }
        post([this, event, unread = read.status()] {
          Failpoint("recall.read");
          if (!unread.ok()) sink_.OnUnread(event->job, unread);
          Handle(std::move(*event));
        });
      });
}

// They overtake their own commit, but no message that waits for an earlier one.
void ControllerRuntime::SendEager(std::vector<WorkerSend>* sends) {
  if (held_messages_ > 0 || closed_ || failed_ || !store_.IsCurrent()) return;
  const auto end = std::ranges::find_if(*sends, [](const WorkerSend& send) { return !send.eager; });
  std::for_each(sends->begin(), end, [this](const WorkerSend& send) { sink_.SendToWorker(send); });
  sends->erase(sends->begin(), end);
}

// What needs no commit of its own is merged with what it must wait for anyway: of a thousand nodes
// that report progress while the disk stalls, one entry is left.
void ControllerRuntime::HoldBack(Effects effects, std::vector<EventRecord> events, bool durable) {
  held_messages_ += effects.sends.size() + effects.closes.size();
  if (!durable || pending_.empty() || !pending_.back().CanTakeMore()) {
    pending_.push_back({next_number_++, durable, std::move(effects), std::move(events), {}});
    return;
  }
  Effects& last = pending_.back().effects;
  std::ranges::move(effects.sends, std::back_inserter(last.sends));
  std::ranges::move(effects.closes, std::back_inserter(last.closes));
  std::ranges::move(effects.replies, std::back_inserter(last.replies));
  for (JobId& job : effects.changed) {
    if (std::ranges::find(last.changed, job) == last.changed.end())
      last.changed.push_back(std::move(job));
  }
}

void ControllerRuntime::AfterDurable(DurableHandler function) {
  Wait(std::move(function), /*leaves_trace=*/false);
}

void ControllerRuntime::AfterTrace(DurableHandler function) {
  Wait(std::move(function), /*leaves_trace=*/true);
}

void ControllerRuntime::Wait(DurableHandler function, bool leaves_trace) {
  if (closed_) return function(Unavailable("the coordinator is shutting down"));
  const Status room = store_.CheckRoom();
  if (store_.IsCurrent()) {
    if (pending_.empty()) return function(OkStatus());
    if (!room.ok()) return function(leaves_trace ? room : OkStatus());
  }
  pending_.push_back({next_number_++, true, {}, {}, std::move(function), leaves_trace});
}

void ControllerRuntime::OnCommitted(std::uint64_t number, const Status& status) {
  if (closed_ || failed_) return;
  if (!status.ok()) {
    failed_ = true;
    return sink_.OnStoreFailed(status);
  }
  Failpoint("decision.durable");
  --uncommitted_;
  // Numbers are consecutive, and what is released leaves from the front.
  pending_[number - pending_.front().number].durable = true;
  ReleaseDurable();
  HandleWaiting();
}

void ControllerRuntime::ReleaseDurable() {
  while (!pending_.empty() && pending_.front().durable && !closed_ && !failed_ &&
         store_.IsCurrent()) {
    Pending next = std::move(pending_.front());
    pending_.pop_front();
    if (next.function) {
      next.function(OkStatus());
    } else {
      Release(next.effects);
      if (!next.events.empty()) sink_.OnEvents(next.events);
    }
  }
}

void ControllerRuntime::OnStoreChanged() {
  if (closed_ || failed_) return;
  if (const Status room = store_.CheckRoom(); !room.ok()) GiveUpWaiting(room);
  ReleaseDurable();
}

// Room may be made in days. Until then queries are answered with what is decided.
void ControllerRuntime::GiveUpWaiting(const Status& room) {
  auto handlers = std::exchange(handlers_, {});
  for (auto& [request, handler] : handlers)
    handler(Reply{.request = request,
                  .status = ResourceExhausted(room.message() +
                                              "; the request takes effect once there is room")});
  if (!store_.IsCurrent()) return;
  std::vector<std::pair<DurableHandler, bool>> waiting;
  for (Pending& item : pending_) {
    if (item.function)
      waiting.emplace_back(std::exchange(item.function, nullptr), item.leaves_trace);
  }
  for (const auto& [function, leaves_trace] : waiting) function(leaves_trace ? room : OkStatus());
}

void ControllerRuntime::Release(Effects& effects) {
  held_messages_ -= effects.sends.size() + effects.closes.size();
  for (const WorkerSend& send : effects.sends) {
    Failpoint("order.before");
    sink_.SendToWorker(send);
    Failpoint("order.after");
  }
  for (const CloseSession& close : effects.closes) sink_.CloseWorker(close);
  for (const Reply& reply : effects.replies) {
    Failpoint("reply.before");
    if (auto handler = handlers_.extract(reply.request)) handler.mapped()(reply);
    Failpoint("reply.after");
  }
  if (!effects.changed.empty()) sink_.OnJobsChanged(effects.changed);
}

void ControllerRuntime::ArmTimer() {
  const std::optional<TimePoint> due = controller_.NextDeadline();
  if (due == armed_) return;
  armed_ = due;
  loop_.set_timer(due, [this] {
    armed_.reset();
    Failpoint("tick");
    Handle(Tick{});
  });
}

void ControllerRuntime::Close(const Status& reason) {
  if (closed_) return;
  closed_ = true;
  loop_.set_timer({}, {});
  auto handlers = std::exchange(handlers_, {});
  for (auto& [request, handler] : handlers) handler(Reply{.request = request, .status = reason});
  waiting_.clear();
  auto pending = std::exchange(pending_, {});
  for (Pending& item : pending) {
    if (item.function) item.function(reason);
  }
}

}  // namespace muster
