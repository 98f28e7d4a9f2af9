#include "coordinator/control/controller.h"

#include "coordinator/control/core.h"

namespace muster {

Controller::Controller(ControllerOptions options)
    : core_(std::make_unique<ControllerCore>(std::move(options))) {}
Controller::~Controller() = default;

Effects Controller::Restore(StoredState state, Now now) {
  return core_->Restore(std::move(state), now);
}
Effects Controller::Handle(const Event& event, Now now) { return core_->Handle(event, now); }
std::optional<TimePoint> Controller::NextDeadline() const { return core_->NextDeadline(); }

Result<JobView> Controller::FindJob(std::string_view job) const { return core_->FindJob(job); }
std::vector<JobView> Controller::Jobs() const { return core_->Jobs(); }
std::vector<NodeView> Controller::Nodes() const { return core_->Nodes(); }
const std::deque<EventRecord>& Controller::Events() const { return core_->Events(); }
Result<LogLocation> Controller::LocateLog(std::string_view job, int rank,
                                          Generation generation) const {
  return core_->LocateLog(job, rank, generation);
}
int Controller::PendingJobs() const { return core_->PendingJobs(); }
Goodput Controller::ClusterGoodput(TimePoint now, bool stored) const {
  return core_->ClusterGoodput(now, stored);
}

}  // namespace muster
