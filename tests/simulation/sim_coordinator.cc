#include "tests/simulation/sim_coordinator.h"

#include "common/base/check.h"

namespace muster::sim {

SimCoordinator::SimCoordinator(EventQueue& queue, std::unique_ptr<SimStore> store,
                               ControllerOptions options, RuntimeLimits limits, Callbacks callbacks)
    : queue_(queue),
      store_(std::move(store)),
      options_(std::move(options)),
      limits_(limits),
      callbacks_(std::move(callbacks)) {}

LoopHandle SimCoordinator::Loop() {
  const auto at = [this, life = life_](TimePoint when, std::function<void()> function) {
    queue_.At(when, [this, life, function = std::move(function)]() mutable {
      if (life == life_) Run(std::move(function));
    });
  };
  return {
      .post = [this, at](std::function<void()> function) { at(queue_.now(), std::move(function)); },
      .set_timer =
          [this, at](std::optional<TimePoint> when, std::function<void()> function) {
            const std::uint64_t timer = ++timer_;
            if (!when) return;
            at(*when, [this, timer, function = std::move(function)] {
              if (timer == timer_) function();
            });
          }};
}

void SimCoordinator::Start() {
  ControllerOptions options = options_;
  options.epoch = store_->epoch();
  EffectSink& sink = *this;
  runtime_ = std::make_unique<ControllerRuntime>(Loop(), *store_, sink, std::move(options), queue_,
                                                 limits_);
  const Status restored = runtime_->Restore();
  MUSTER_CHECK(restored.ok(), restored.ToString());
  std::vector<JobId> all;
  for (const JobView& job : controller().Jobs()) all.push_back(job.record->id);
  callbacks_.decided(all);
}

void SimCoordinator::Crash() {
  ++life_;
  runtime_.reset();
  paused_ = false;
  waiting_.clear();
  store_->Crash();
}

void SimCoordinator::Continue() {
  paused_ = false;
  while (!waiting_.empty() && up() && !paused_) {
    const std::function<void()> next = std::move(waiting_.front());
    waiting_.pop_front();
    next();
  }
}

void SimCoordinator::OnStoreFailed(const Status&) {
  queue_.After(Duration::zero(), [this, life = life_] {
    if (life == life_) callbacks_.failed();
  });
}

}  // namespace muster::sim
