#include "tests/simulation/sim_coordinator.h"

#include <algorithm>
#include <utility>

namespace muster::sim {

SimCoordinator::SimCoordinator(EventQueue& queue, std::unique_ptr<SimStore> store,
                               ControllerOptions options, Sink sink)
    : queue_(queue),
      store_(std::move(store)),
      options_(std::move(options)),
      sink_(std::move(sink)) {}

Now SimCoordinator::Clock() const {
  const auto since = queue_.now().time_since_epoch();
  return {queue_.now(), std::chrono::duration_cast<std::chrono::milliseconds>(since).count()};
}

void SimCoordinator::Start() {
  controller_ = std::make_unique<Controller>(options_);
  Take(controller_->Restore(store_->Load(), Clock()));
  Arm();
  std::vector<JobId> all;
  for (const JobView& job : controller_->Jobs()) all.push_back(job.record->id);
  sink_.handled(all);
}

void SimCoordinator::Crash() {
  ++life_;
  controller_.reset();
  paused_ = false;
  waiting_.clear();
  pending_.clear();
  handlers_.clear();
  armed_.reset();
  store_->Crash();
}

void SimCoordinator::Continue() {
  paused_ = false;
  while (!waiting_.empty() && up() && !paused_) {
    const Event event = std::move(waiting_.front());
    waiting_.pop_front();
    Handle(event);
  }
  if (up()) Arm();
}

void SimCoordinator::Deliver(Event event) {
  if (!up()) return;
  if (paused_) {
    waiting_.push_back(std::move(event));
  } else {
    Handle(event);
  }
}

void SimCoordinator::Handle(const Event& event) {
  Effects effects = controller_->Handle(event, Clock());
  const std::vector<JobId> changed = effects.changed;
  Take(std::move(effects));
  Arm();
  if (up()) sink_.handled(changed);
}

void SimCoordinator::Take(Effects effects) {
  for (const JobId& job : std::exchange(effects.recalls, {})) ReadArchived(job);
  if (effects.empty()) return;
  const bool none_waits = std::ranges::all_of(
      pending_, [](const Pending& pending) { return pending.effects.sends.empty(); });
  while (none_waits && !effects.sends.empty() && effects.sends.front().eager) {
    sink_.send(effects.sends.front());
    effects.sends.erase(effects.sends.begin());
  }
  const std::uint64_t number = next_number_++;
  std::vector<StoreOperation> operations = std::move(effects.store);
  const bool durable = operations.empty();
  pending_.push_back({number, durable, std::move(effects)});
  if (durable) return Release();
  store_->Commit(std::move(operations), [this, number, life = life_] {
    if (life != life_) return;
    pending_[number - pending_.front().number].durable = true;
    Release();
  });
}

// Sees what was committed before.
void SimCoordinator::ReadArchived(const JobId& job) {
  store_->Commit({}, [this, job, life = life_] {
    if (life != life_) return;
    const ArchivedRecords* found = store_->FindArchived(job);
    Result<ArchivedRecords> records = NotFound("job " + job.value + " was deleted");
    if (found != nullptr) records = *found;
    Deliver(ArchivedJobRead{job, std::move(records)});
  });
}

void SimCoordinator::Release() {
  while (!pending_.empty() && pending_.front().durable) {
    const Effects effects = std::move(pending_.front().effects);
    pending_.pop_front();
    for (const WorkerSend& send : effects.sends) sink_.send(send);
    for (const CloseSession& close : effects.closes) sink_.close(close);
    for (const Reply& reply : effects.replies) {
      auto handler = handlers_.extract(reply.request);
      if (handler) handler.mapped()(reply);
    }
    for (const Observation& observation : effects.observations) sink_.observe(observation);
  }
}

void SimCoordinator::Arm() {
  const std::optional<TimePoint> due = controller_->NextDeadline();
  if (!due || due == armed_) {
    armed_ = due;
    return;
  }
  armed_ = due;
  queue_.At(*due, [this, due, life = life_] {
    if (life != life_ || armed_ != due) return;
    armed_.reset();
    Deliver(Tick{});
  });
}

}  // namespace muster::sim
