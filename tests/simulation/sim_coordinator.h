// SimCoordinator: the coordinator's process. The real ControllerRuntime and store on a loop of
// virtual time and a simulated disk.
//
// Streams are its edge to the workers: what it sends goes to `Callbacks`.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "coordinator/service/controller_runtime.h"
#include "tests/simulation/sim_store.h"

namespace muster::sim {

class SimCoordinator final : private EffectSink {
 public:
  struct Callbacks {
    std::function<void(const WorkerSend&)> send;
    std::function<void(const CloseSession&)> close;
    // After every event; the jobs whose view has changed.
    std::function<void(const std::vector<JobId>&)> decided;
    // The process ends, because its disk failed.
    std::function<void()> failed;
  };

  SimCoordinator(EventQueue& queue, std::unique_ptr<SimStore> store, ControllerOptions options,
                 RuntimeLimits limits, Callbacks callbacks);

  void Start();
  // kill -9, and perhaps power: open requests get no reply.
  void Crash();
  // SIGSTOP: what comes to its loop waits. Continue runs it.
  void Pause() { paused_ = true; }
  void Continue();
  bool up() const { return runtime_ != nullptr; }
  bool paused() const { return paused_; }

  // Lost while it is down. `taken`: as ControllerRuntime::Handle has it.
  void Deliver(Event event, std::function<void()> taken = nullptr) {
    Run([this, event = std::move(event), taken = std::move(taken)]() mutable {
      runtime_->Handle(std::move(event), std::move(taken));
    });
  }
  // Sets the event's request number.
  template <typename Request>
  void Ask(Request request, ControllerRuntime::ReplyHandler handler) {
    Run([this, request = std::move(request), handler = std::move(handler)]() mutable {
      runtime_->Ask(std::move(request), std::move(handler));
    });
  }

  const Controller& controller() const { return runtime_->controller(); }
  SimStore& store() { return *store_; }
  const SimStore& store() const { return *store_; }
  // How often nothing was decided until the disk had caught up.
  int stalls() const { return stalls_; }

 private:
  void OnDecided(const Effects& effects) override { callbacks_.decided(effects.changed); }
  void OnDiskBehind(std::size_t, std::size_t) override { ++stalls_; }
  void OnUnread(const JobId&, const Status&) override {}
  void SendToWorker(const WorkerSend& send) override { callbacks_.send(send); }
  void CloseWorker(const CloseSession& close) override { callbacks_.close(close); }
  void OnJobsChanged(const std::vector<JobId>&) override {}
  void OnEvents(const std::vector<EventRecord>&) override {}
  void OnHigherEpoch(std::uint64_t) override {}
  void OnStoreFailed(const Status& status) override;

  LoopHandle Loop();
  // On the process's loop.
  template <typename Function>
  void Run(Function function) {
    if (!up()) return;
    if (paused_) {
      waiting_.emplace_back(std::move(function));
    } else {
      function();
    }
  }

  EventQueue& queue_;
  const std::unique_ptr<SimStore> store_;
  const ControllerOptions options_;
  const RuntimeLimits limits_;
  const Callbacks callbacks_;
  std::unique_ptr<ControllerRuntime> runtime_;
  std::uint64_t life_ = 0;   // rises with every crash
  std::uint64_t timer_ = 0;  // rises whenever the loop's timer is set
  bool paused_ = false;
  std::deque<std::function<void()>> waiting_;
  int stalls_ = 0;
};

}  // namespace muster::sim
