#include "coordinator/control/controller.h"

#include <utility>

#include "coordinator/control/attempt_end.h"
#include "coordinator/control/clock_change.h"
#include "coordinator/control/deadlines.h"
#include "coordinator/control/drain.h"
#include "coordinator/control/fault_injection.h"
#include "coordinator/control/invariants.h"
#include "coordinator/control/job_requests.h"
#include "coordinator/control/node_sessions.h"
#include "coordinator/control/placement.h"
#include "coordinator/control/preparing.h"
#include "coordinator/control/queries.h"
#include "coordinator/control/queue_days.h"
#include "coordinator/control/queues.h"
#include "coordinator/control/readings.h"
#include "coordinator/control/recalls.h"
#include "coordinator/control/restore.h"
#include "coordinator/control/running.h"
#include "coordinator/control/scheduler_snapshot.h"
#include "coordinator/control/secrets.h"
#include "coordinator/control/silence.h"
#include "coordinator/control/time_booking.h"
#include "coordinator/control/transaction.h"
#include "coordinator/control/users.h"

namespace muster {
namespace control {
namespace {

// A Heartbeat only shows that the node is alive; log chunks are for the service.
void Handle(Transaction&, const NodeName&, const Heartbeat&) {}
void Handle(Transaction&, const NodeName&, const LogChunk&) {}

void On(Transaction& tx, const ClusterNote& note) {
  tx.RecordClusterEvent({note.kind, note.severity, note.message});
}

void On(Transaction& tx, const PoolDeclared& declared) { tx.state.pool = declared; }

void On(Transaction& tx, const WorkerMessageReceived& said) {
  const auto session = tx.state.sessions.find(said.session);
  if (session == tx.state.sessions.end()) return;
  const NodeName name = session->second;
  NodeEntry& node = tx.node(name);
  node.heard_at = tx.now.mono;
  if (node.suspect) MarkAlive(tx, node);
  std::visit([&](const auto& message) { Handle(tx, name, message); }, said.message);
}

void Dispatch(Transaction& tx, const Event& event) {
  std::visit([&tx](const auto& each) { On(tx, each); }, event);
}

// Processes what handlers left for the layers above them, until nothing is left.
void Settle(Transaction& tx) {
  while (tx.Expired(tx.state.NextPass()) || !tx.to_decide.empty() || !tx.may_end.empty()) {
    for (const NodeName& name : std::exchange(tx.to_decide, {})) DetectLostNode(tx, tx.node(name));
    for (const JobId& id : std::exchange(tx.may_end, {})) {
      if (tx.job(id).gang) MaybeEndAttempt(tx, tx.job(id));
    }
    if (!tx.Expired(tx.state.NextPass())) continue;
    Schedule(tx);
    CompleteDrains(tx);
  }
}

Effects Finish(Transaction& tx) {
  for (const JobId& id : tx.changed()) AccrueTime(tx, tx.job(id));
  BookUnused(tx);
  UpdateDeadlines(tx);
  return tx.Finish();
}

}  // namespace
}  // namespace control

struct Controller::Core {
  ControllerOptions options;
  control::State state;
  control::NewestView view = {};  // kept for questions, which change it; no part of the state
};

Controller::Controller(ControllerOptions options)
    : core_(std::make_unique<Core>(Core{std::move(options), {}})) {}
Controller::~Controller() = default;

Effects Controller::Restore(StoredState state, Now now) {
  control::Transaction tx(core_->options, core_->state, now);
  control::Restore(tx, std::move(state));
  return control::Finish(tx);
}

Effects Controller::Handle(const Event& event, Now now) {
  control::Transaction tx(core_->options, core_->state, now);
  control::FollowClock(tx);
  control::CompensateForStall(tx, NextDeadline());
  control::Dispatch(tx, event);
  control::Settle(tx);
  control::RunReadings(tx);
  control::RunRecalls(tx);
  control::Settle(tx);
  Effects effects = control::Finish(tx);
  core_->view.Expire(core_->state, now);
  return effects;
}

Access Controller::access() const { return {core_->state.users, core_->state.queues}; }
UsersView Controller::Users() const { return {&core_->state.users, &core_->state.users_yaml}; }
const std::map<SecretName, SecretRecord>& Controller::Secrets() const {
  return core_->state.secrets;
}

Result<std::vector<std::pair<SecretUse, SecretRecord>>> Controller::SecretsOf(
    const JobView& job) const {
  std::vector<std::pair<SecretUse, SecretRecord>> out;
  for (const SecretUse& use : job.spec->secrets) {
    const SecretRecord* found = control::FindSecret(core_->state, job.record->owner,
                                                    QueueName(job.record->queue), use.name);
    if (found == nullptr)
      return NotFound(job.record->owner + " has no secret '" + use.name + "' any more, which job " +
                      job.record->id.value + " needs");
    out.emplace_back(use, *found);
  }
  return out;
}

std::uint64_t Controller::audit_entries() const { return core_->state.audit.seq; }

Status Controller::CheckInvariants() const {
  std::string broken = control::BrokenInvariant(core_->state);
  return broken.empty() ? OkStatus() : Internal(std::move(broken));
}

std::optional<TimePoint> Controller::NextDeadline() const {
  return control::NextDeadline(core_->state);
}

Result<JobView> Controller::FindJob(std::string_view job, const JobFilter& filter) const {
  return control::FindJob(core_->state, job, filter);
}
JobId Controller::FindArchived(std::string_view job, const JobFilter& filter) const {
  const auto* found = control::FindArchived(core_->state, job, filter);
  return found == nullptr ? JobId{} : found->first;
}
std::size_t Controller::archived_jobs() const { return core_->state.archive.jobs().size(); }
std::vector<JobView> Controller::Jobs() const { return control::Jobs(core_->state); }
std::vector<NodeView> Controller::Nodes() const { return control::Nodes(core_->state); }
QueuesView Controller::Queues() const { return control::QueueViews(core_->state); }
QueueDays Controller::UsageByDay(Now now) const { return control::QueueDaysNow(core_->state, now); }
QueueTotals Controller::UsageTotals(Now now) const {
  return control::QueueTotalsNow(core_->state, now);
}
std::shared_ptr<const ScheduleView> Controller::ReadSchedule(Now now) const {
  return core_->view.Of(core_->state, now);
}
const std::deque<EventRecord>& Controller::Events() const { return core_->state.events; }
Result<LogLocation> Controller::LocateLog(const JobView& job, int rank,
                                          Generation generation) const {
  return control::LocateLog(core_->state, job, rank, generation);
}
int Controller::PendingJobs() const { return control::PendingJobs(core_->state); }
std::shared_ptr<const WhyQuestion> Controller::AskWhy(const JobId& job, Now now) const {
  return control::AskWhy(core_->state, core_->view, job, now);
}
Result<std::shared_ptr<const WhyQuestion>> Controller::AskWhy(const JobSpec& spec,
                                                              const std::string& owner, Now now,
                                                              const JobFilter& sees) const {
  return control::AskWhy(core_->state, core_->view, core_->options, spec, owner, now, sees);
}
Goodput Controller::ClusterGoodput(TimePoint now, bool stored) const {
  return control::ClusterGoodput(core_->state, now, stored);
}

}  // namespace muster
