// ControllerRuntime: runs the controller. Passes events and the clock to it, commits what it
// decides, and releases a decision only once it is durable.
//
// Owned by the server, and by the simulation's coordinator; everything but the constructor runs on
// the loop's thread. The store, the loop and the sink outlive it.
//
// Invariants: effects are released in the order the controller returned them, each after its own
// commit and all earlier ones. After a failed commit nothing is released any more: the state in
// memory stays ahead of the disk, and OnStoreFailed requests the end of the process.
//
// A store that is not sure to be current, because etcd has not confirmed the leader's lease in
// time, holds everything back: another coordinator may have decided since. While a store has no
// room, requests are refused, and queries are answered from memory, with decisions that are not
// durable yet: they can be lost with the process, but nothing of them was acknowledged.
//
// While the disk stalls, no queue grows without a bound and no message of a worker is lost: first
// clients' requests are refused, and from RuntimeLimits::held_back on nothing is decided until the
// disk has caught up. Events then wait, one of each worker's stream, because a stream reads on only
// when its last message is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/runtime/loop_handle.h"
#include "coordinator/control/controller.h"
#include "coordinator/store/store.h"

namespace muster {

// The destination of effects. Called on the loop's thread.
class EffectSink {
 public:
  virtual ~EffectSink() = default;
  // What the controller has decided, before any of it is durable or released: for the log and for
  // figures, which are no guarantees.
  virtual void OnDecided(const Effects& effects) = 0;
  // Nothing is decided until the disk has caught up with these commits and messages to workers.
  virtual void OnDiskBehind(std::size_t commits, std::size_t messages) = 0;
  // The store could not read an archived job.
  virtual void OnUnread(const JobId& archived, const Status& status) = 0;
  virtual void SendToWorker(const WorkerSend& send) = 0;
  virtual void CloseWorker(const CloseSession& close) = 0;
  virtual void OnJobsChanged(const std::vector<JobId>& jobs) = 0;
  // New lines of the timeline of jobs and cluster, in order.
  virtual void OnEvents(const std::vector<EventRecord>& events) = 0;
  // A node refuses coordinators below this epoch, which is above ours.
  virtual void OnHigherEpoch(std::uint64_t epoch) = 0;
  // The sink ends the process, after this call has returned.
  virtual void OnStoreFailed(const Status& status) = 0;
};

struct RuntimeLimits {
  // Requests that wait for their commit; more are refused.
  std::size_t requests = 1024;
  // Commits that wait for the disk; with more, requests are refused. Thousands of workers connect
  // at once when a coordinator starts.
  std::size_t uncommitted = 4096;
  // Commits and messages to workers that wait for the disk; with more, events wait. Fewer than
  // poison a store (CommitQueueOptions).
  std::size_t held_back = 8192;
};

class ControllerRuntime {
 public:
  using ReplyHandler = std::function<void(const Reply&)>;

  ControllerRuntime(LoopHandle loop, Store& store, EffectSink& sink, ControllerOptions options,
                    const Clock& clock, RuntimeLimits limits = {});

  // Takes over the contents of the store. Once, before any event. Fails where they cannot be read,
  // or have queues or users that this version does not accept.
  Status Restore();

  // `taken` is called once the event is handled, at once unless it must wait; not after Close, and
  // not if the event's session has ended while it waited.
  void Handle(Event event, std::function<void()> taken = nullptr);
  // For an event with a `request`, which is set here and returned; 0: refused. `handler` is called
  // exactly once, unless the request is forgotten before.
  template <typename Request>
  RequestId Ask(Request event, ReplyHandler handler) {
    event.request = Admit(std::move(handler));
    if (event.request != 0) HandleNow(event);
    return event.request;
  }
  // The caller has gone: its handler is dropped. Its request continues.
  void Forget(RequestId request);

  // Calls `function` with OK once everything decided so far is durable, at once if it is; with the
  // reason if it never will be. Results of queries of the controller are sent through this.
  using DurableHandler = std::function<void(const Status&)>;
  void AfterDurable(DurableHandler function);
  // The same for what must leave a trace, such as a certificate: without room in the store,
  // `function` gets kResourceExhausted.
  void AfterTrace(DurableHandler function);

  // The store may know again that it is current, or may have no room any more.
  void OnStoreChanged();

  // From now on events are dropped, waiting requests are refused and nothing more is released.
  void Close(const Status& reason);

  const Controller& controller() const { return controller_; }
  std::size_t pending_requests() const { return handlers_.size(); }
  std::uint64_t refused_requests() const { return refused_requests_; }
  // Events that wait until the disk has caught up, and decisions that wait for their turn.
  std::size_t waiting_events() const { return waiting_.size(); }
  std::size_t held_back() const { return pending_.size(); }

 private:
  // An entry that waits for its turn: effects for their commit, a function for the effects before
  // it.
  struct Pending {
    std::uint64_t number = 0;
    bool durable = false;
    Effects effects;
    std::vector<EventRecord> events;
    DurableHandler function;
    bool leaves_trace = false;  // of `function`

    bool CanTakeMore() const { return durable && !function; }
  };
  struct Waiting {
    Event event;
    std::function<void()> taken;
  };

  RequestId Admit(ReplyHandler handler);
  Now ReadClock() const;
  bool HoldsBackTooMuch() const { return uncommitted_ + held_messages_ >= limits_.held_back; }
  void HandleNow(const Event& event);
  void Wait(Event event, std::function<void()> taken);
  bool ForgetWhole(SessionId session);
  void HandleWaiting();
  void Take(Effects effects);
  void Commit(Effects effects);
  void ReadArchived(const JobId& job);
  void SendEager(std::vector<WorkerSend>* sends);
  void HoldBack(Effects effects, std::vector<EventRecord> events, bool durable);
  void OnCommitted(std::uint64_t number, const Status& status);
  void ReleaseDurable();
  void GiveUpWaiting(const Status& room);
  void Wait(DurableHandler function, bool leaves_trace);
  void Release(Effects& effects);
  void ArmTimer();

  const LoopHandle loop_;
  Store& store_;
  EffectSink& sink_;
  const Clock& clock_;
  const RuntimeLimits limits_;
  Controller controller_;
  std::optional<TimePoint> armed_;
  std::deque<Pending> pending_;
  std::size_t uncommitted_ = 0;    // of pending_
  std::size_t held_messages_ = 0;  // to workers, in pending_
  std::deque<Waiting> waiting_;
  std::uint64_t next_number_ = 1;
  RequestId next_request_ = 1;
  std::unordered_map<RequestId, ReplyHandler> handlers_;
  std::uint64_t refused_requests_ = 0;
  bool closed_ = false;
  bool failed_ = false;
};

}  // namespace muster
