// SimCoordinator: the coordinator's process. The real Controller, a simulated disk, and the rule of
// effects.h in between: nothing is released before it, and all before it, is durable.
//
// Streams are its edge to the workers: what it sends goes to `Sink`.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "coordinator/control/controller.h"
#include "tests/simulation/sim_store.h"

namespace muster::sim {

class SimCoordinator {
 public:
  struct Sink {
    std::function<void(const WorkerSend&)> send;
    std::function<void(const CloseSession&)> close;
    std::function<void(const Observation&)> observe;
    // After every event, its effects taken; the jobs whose view has changed.
    std::function<void(const std::vector<JobId>&)> handled;
  };
  using ReplyHandler = std::function<void(const Reply&)>;

  SimCoordinator(EventQueue& queue, std::unique_ptr<SimStore> store, ControllerOptions options,
                 Sink sink);

  void Start();
  // kill -9, and perhaps power: open requests get no reply.
  void Crash();
  // SIGSTOP: events wait. Continue hands them over.
  void Pause() { paused_ = true; }
  void Continue();
  bool up() const { return controller_ != nullptr; }
  bool paused() const { return paused_; }

  // Lost while it is down.
  void Deliver(Event event);
  // Sets the event's request number.
  template <typename Request>
  void Ask(Request request, ReplyHandler handler) {
    if (!up()) return;
    request.request = next_request_++;
    handlers_[request.request] = std::move(handler);
    Deliver(std::move(request));
  }

  const Controller& controller() const { return *controller_; }
  SimStore& store() { return *store_; }
  const SimStore& store() const { return *store_; }

 private:
  struct Pending {
    std::uint64_t number = 0;
    bool durable = false;
    Effects effects;
  };

  Now Clock() const;
  void Handle(const Event& event);
  void Take(Effects effects);
  void ReadArchived(const JobId& job);
  void Release();
  void Arm();

  EventQueue& queue_;
  const std::unique_ptr<SimStore> store_;
  const ControllerOptions options_;
  const Sink sink_;
  std::unique_ptr<Controller> controller_;
  std::uint64_t life_ = 0;
  bool paused_ = false;
  std::deque<Event> waiting_;
  std::deque<Pending> pending_;
  std::uint64_t next_number_ = 1;
  RequestId next_request_ = 1;
  std::map<RequestId, ReplyHandler> handlers_;
  std::optional<TimePoint> armed_;
};

}  // namespace muster::sim
