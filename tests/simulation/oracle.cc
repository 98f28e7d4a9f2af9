#include "tests/simulation/oracle.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "coordinator/control/restart_policy.h"

namespace muster::sim {
namespace {

// Of events between two looks at every slot of the cluster.
constexpr std::uint64_t kSlotsEvery = 64;
constexpr std::int64_t kLingerMs = 30'000;  // after the last fault

bool HoldsSlot(const SimProcess& process) { return process.alive() && process.generation > 0; }

}  // namespace

void Oracle::Violate(std::string invariant, std::string what) {
  if (!violation_) violation_ = Violation{std::move(invariant), std::move(what)};
}

void Oracle::Acknowledged(const JobId& job, const std::string& key) {
  const auto [known, is_new] = acknowledged_.emplace(key, job);
  if (!is_new && known->second != job) {
    Violate("submit is idempotent",
            "key " + key + " is job " + known->second.value + " and " + job.value);
  }
  if (coordinator_.store().FindJob(job) == nullptr) {
    Violate("acknowledged is durable", "job " + job.value + " is not on disk");
  }
}

void Oracle::CancelAcknowledged(const JobId& job) {
  const JobRecord* record = coordinator_.store().FindJob(job);
  if (record == nullptr || (record->stop == StopKind::kNone && !IsTerminal(record->state))) {
    return Violate("acknowledged is durable", "the cancel of job " + job.value + " is not on disk");
  }
  jobs_[job].cancelled_at = record->generation;
}

void Oracle::SuspendAcknowledged(const JobId& job) {
  if (jobs_[job].resume_asked) return;  // it may go on again by now
  const JobRecord* record = coordinator_.store().FindJob(job);
  const bool known =
      record != nullptr && (record->stop != StopKind::kNone ||
                            record->state == JobState::kSuspended || IsTerminal(record->state));
  if (!known) Violate("acknowledged is durable", "the suspend of job " + job.value);
}

void Oracle::ResumeAsked(const JobId& job) {
  jobs_[job].resume_asked = true;
  ++jobs_[job].resumes_pending;
  jobs_[job].suspended_at.reset();
}

void Oracle::ReleaseAcknowledged(const JobId& job) {
  const JobRecord* record = coordinator_.store().FindJob(job);
  if (record == nullptr || record->held)
    Violate("acknowledged is durable", "the release of job " + job.value);
}

void Oracle::AfterCrash() {
  // What was decided and not yet durable never was: no client has heard of it.
  for (auto& [id, facts] : jobs_) {
    facts.resumes_pending = 0;  // requests end with it
    const JobRecord* record = coordinator_.store().FindJob(id);
    if (record == nullptr) continue;
    facts.generation = record->generation;
    facts.final_state.reset();
    if (record->state == JobState::kSuspended) continue;
    facts.suspended_at.reset();
    facts.set_aside_at = 0;
  }
  for (const auto& [key, job] : acknowledged_) {
    if (coordinator_.store().FindJob(job) == nullptr) {
      Violate("acknowledged is durable", "job " + job.value + " is lost in a crash");
    }
  }
  CheckAudit();
}

void Oracle::CheckAudit() {
  if (const Status status = coordinator_.store().CheckAudit(); !status.ok())
    Violate("the audit trail is whole", status.message());
}

void Oracle::AfterCoordinatorEvent(const std::vector<JobId>& changed) {
  for (const JobId& id : changed) {
    const Result<JobView> job = coordinator_.controller().FindJob(id.value);
    if (job.ok()) CheckJob(*job);
  }
  if (const Status status = coordinator_.controller().CheckInvariants(); !status.ok())
    Violate("the state agrees with itself", std::string(status.message()));
  if (++events_ % kSlotsEvery != 0) return;
  CheckSlots();
  CheckDrained();
}

void Oracle::CheckJob(const JobView& job) {
  JobFacts& facts = jobs_[job.record->id];
  const std::string id = "job " + job.record->id.value;
  if (job.record->generation < facts.generation) Violate("generations rise", id);
  if (facts.cancelled_at && job.record->generation > *facts.cancelled_at) {
    Violate("a cancel wins", id + " got another generation");
  }
  if (job.spec->hold && !facts.release_asked && job.record->generation > 0) {
    Violate("a held job waits for its release", id);
  }
  facts.generation = std::max(facts.generation, job.record->generation);
  if (facts.final_state && job.record->state != *facts.final_state) {
    Violate("final states are final", id);
  }
  if (IsTerminal(job.record->state)) facts.final_state = job.record->state;
  int live = 0;
  for (const AttemptRecord& attempt : *job.attempts) {
    live += attempt.state != AttemptState::kEnded ? 1 : 0;
  }
  if (live > 1 || (live == 1 && IsTerminal(job.record->state))) Violate("one live attempt", id);
  CheckEnded(job, facts);
  CheckFailed(job);
  CheckSuspended(job, facts, live);
  CheckCheckpoints(job, facts);
  const auto plan = plans_.find(job.record->id);
  if (job.record->state == JobState::kSucceeded && plan != plans_.end() && plan->second.train &&
      facts.finished < plan->second.max_steps) {
    Violate("success is true", id + " succeeded after step " + std::to_string(facts.finished));
  }
}

// By what really runs, at the moment when the attempt ends: but for nodes that were suspect or lost
// meanwhile, which the next attempt does without, and whose slots wait.
void Oracle::CheckEnded(const JobView& job, JobFacts& facts) {
  if (job.attempts->empty()) return;
  const AttemptRecord& attempt = job.attempts->back();
  const bool has_ended = attempt.state == AttemptState::kEnded;
  if (!has_ended && attempt.state != AttemptState::kAborting) {
    facts.out_of_reach.clear();
    return;
  }
  if (facts.ended >= attempt.generation) return;
  if (has_ended) facts.ended = attempt.generation;
  for (const NodeView& node : coordinator_.controller().Nodes()) {
    const NodeState state = node.record->state;
    if (state == NodeState::kSuspect || state == NodeState::kLost || !node.connected)
      facts.out_of_reach.insert(node.record->name);
    if (!has_ended || facts.out_of_reach.contains(node.record->name)) continue;
    const auto index = static_cast<std::size_t>(std::stoi(node.record->name.value.substr(1)));
    for (const ProcessPtr& process : nodes_.at(index)->processes()) {
      const bool of_it =
          process->job == job.record->id && process->generation == attempt.generation;
      const bool waits = process->state == SimProcess::State::kParked ||
                         process->state == SimProcess::State::kStandby;
      if (!of_it || waits || !process->alive() || process->unkillable) continue;
      Violate("an attempt that has ended runs nowhere",
              "process " + std::to_string(process->pid) + " of job " + process->job.value + " g" +
                  std::to_string(process->generation) + " on " + node.record->name.value);
    }
  }
}

// The jobs are good ones (clients.cc): besides a time limit only faults without end, or one that
// comes again, make them fail.
void Oracle::CheckFailed(const JobView& job) {
  const JobRecord& record = *job.record;
  if (record.state != JobState::kFailed || record.stop == StopKind::kTimeLimit) return;
  if (record.attempts_without_progress >= kAttemptsWithoutProgress) return;
  const std::vector<AttemptRecord>& attempts = *job.attempts;
  if (attempts.size() > 1 && IsSameFault(attempts[attempts.size() - 2], attempts.back())) return;
  Violate("a good job does not fail", "job " + record.id.value + ": " + record.reason);
}

void Oracle::CheckSuspended(const JobView& job, JobFacts& facts, int live) {
  const JobRecord& record = *job.record;
  const std::string id = "job " + record.id.value;
  if (facts.suspended_at && record.generation > *facts.suspended_at) {
    Violate("a suspended job waits for its resume", id + " got another generation");
  }
  // It may have been placed again in the same event.
  const auto ended = std::ranges::find(job.attempts->rbegin(), job.attempts->rend(),
                                       AttemptState::kEnded, &AttemptRecord::state);
  if (ended != job.attempts->rend() && ended->cause_kind == CauseKind::kPreempted &&
      std::exchange(facts.preempted, ended->generation) != ended->generation) {
    facts.set_aside_at = record.committed_step;
    facts.finished = std::min(facts.finished, record.committed_step);
  }
  if (record.state != JobState::kSuspended) return;
  if (live > 0) Violate("a suspended job is at rest", id);
  if (!facts.suspended_at) {
    // What its last checkpoint had not will be done again, as expected.
    facts.set_aside_at = record.committed_step;
    facts.finished = std::min(facts.finished, record.committed_step);
  }
  // A coordinator that was stopped handles other events of the job before the resume that waits.
  if (facts.resumes_pending == 0) facts.suspended_at = record.generation;
}

void Oracle::CheckCheckpoints(const JobView& job, JobFacts& facts) {
  const auto disk = disks_.find(job.record->id);
  bool whole = false;
  bool any = false;
  for (const CheckpointRecord& checkpoint : *job.checkpoints) {
    if (checkpoint.committed_unix_ms == 0 || checkpoint.state != CheckpointState::kCommitted) {
      continue;
    }
    any = true;
    const std::string name = "job " + job.record->id.value + " " + checkpoint.directory;
    const bool complete = LiesWhole(checkpoint);
    whole = whole || complete;
    if (checkpoint.verified_unix_ms != 0 && !complete) Violate("verified is whole", name);
    if (complete && checkpoint.manifest_written && !disk->second.at(checkpoint.directory).manifest)
      Violate("a commit record is where it is said to be", name);
    if (!facts.committed.insert(checkpoint.directory).second) continue;
    if (!complete) {
      Violate("committed is complete", name);
      continue;
    }
    std::set<Content> contents;
    for (const auto& [rank, content] : disk->second.at(checkpoint.directory).shards)
      contents.insert(content);
    if (contents.size() != 1) Violate("committed is one state", name);
  }
  if (any && !whole) {
    Violate("a committed checkpoint stays", "job " + job.record->id.value + " has none on disk");
  }
}

bool Oracle::LiesWhole(const CheckpointRecord& checkpoint) const {
  const auto disk = disks_.find(checkpoint.job);
  if (disk == disks_.end()) return false;
  const auto files = disk->second.find(checkpoint.directory);
  return files != disk->second.end() &&
         static_cast<int>(files->second.shards.size()) == checkpoint.world_size;
}

// By what is durable, because what is ordered was durable before.
void Oracle::Removes(const JobId& job, const std::string& directory) {
  const std::vector<CheckpointRecord> known = coordinator_.store().Checkpoints(job);
  const auto gone = std::find_if(known.begin(), known.end(), [&](const CheckpointRecord& each) {
    return each.directory == directory;
  });
  if (gone == known.end() || gone->committed_unix_ms == 0) return;
  const bool replaced = std::any_of(known.begin(), known.end(), [&](const CheckpointRecord& each) {
    return std::tuple(each.step, each.generation) > std::tuple(gone->step, gone->generation) &&
           each.verified_unix_ms != 0 && each.refused.empty() && LiesWhole(each);
  });
  if (gone->state != CheckpointState::kPruning || !replaced)
    Violate("a checkpoint goes for a newer verified one", "job " + job.value + " " + directory);
}

// By what was decided; what really runs is AfterNodeEvent's. Attempts that are being ended are left
// out: after a restart they count again until their nodes have said what is left.
void Oracle::CheckSlots() {
  std::map<NodeName, int> given;
  std::map<std::string, JobId> devices;
  for (const JobView& job : coordinator_.controller().Jobs()) {
    if (job.attempts->empty()) continue;
    const AttemptRecord& attempt = job.attempts->back();
    const AttemptState state = attempt.state;
    if (state == AttemptState::kAborting || state == AttemptState::kEnded) continue;
    const auto give = [&](const std::vector<std::string>& of_node) {
      for (const std::string& device : of_node)
        if (const auto [other, is_new] = devices.emplace(device, job.record->id); !is_new)
          Violate("devices are given once", device + " to job " + other->second.value +
                                                " and to job " + job.record->id.value);
    };
    // A node whose ranks have all exited may have another job.
    std::set<NodeName> busy;
    for (const RankRecord& rank : job.ranks()) {
      if (rank.state == RankState::kExited) continue;
      ++given[rank.node];
      busy.insert(rank.node);
    }
    for (std::size_t n = 0; n < attempt.node_devices.size(); ++n)
      if (busy.contains(attempt.nodes[n])) give(attempt.node_devices[n]);
    // A shared spare has its devices when a rank runs there.
    if (!job.spec->resources.share_spares)
      for (const std::vector<std::string>& of_spare : attempt.spare_devices) give(of_spare);
  }
  for (const NodeView& node : coordinator_.controller().Nodes()) {
    if (given[node.record->name] > node.record->slots) {
      Violate("slots are given once", "node " + node.record->name.value + " gives " +
                                          std::to_string(given[node.record->name]) + " of " +
                                          std::to_string(node.record->slots));
    }
  }
}

// By what really runs: a node that is said to be empty may be turned off.
void Oracle::CheckDrained() {
  for (const NodeView& node : coordinator_.controller().Nodes()) {
    if (node.record->state != NodeState::kDrained) continue;
    const auto index = static_cast<std::size_t>(std::stoi(node.record->name.value.substr(1)));
    for (const ProcessPtr& process : nodes_.at(index)->processes()) {
      if (!process->alive() || process->unkillable) continue;
      Violate("a drained node is empty",
              "process " + std::to_string(process->pid) + " of job " + process->job.value + " g" +
                  std::to_string(process->generation) + " on " + node.record->name.value);
    }
  }
}

// By what really runs: the living processes and what the guardians have locked.
void Oracle::CheckDevices(const SimNode& node) {
  std::map<std::string_view, const JobId*> users;
  const auto use = [&](const JobId& job, const std::vector<std::string>& devices) {
    for (const std::string& device : devices)
      if (const JobId& first = *users.emplace(device, &job).first->second; first != job)
        Violate("a device has one job",
                device + " is used by job " + first.value + " and by job " + job.value);
  };
  for (const auto& [job, guardian] : node.guardians())
    if (guardian->alive()) use(job, guardian->locked());
  for (const ProcessPtr& process : node.processes())
    if (process->alive()) use(process->job, process->devices);
}

// What starts leads no user over the limit. What recovers may, and counts meanwhile.
void Oracle::AfterPass(const SchedulerSnapshot& snapshot, const SchedulePlan& plan) {
  has_users_ = true;
  using Share = std::pair<std::string, std::string>;
  const auto share = [this](const JobId& job) {
    const SimJobPlan& of_job = plans_.at(job);
    return Share(of_job.queue, of_job.owner);
  };
  std::map<Share, std::set<JobId>> runs;
  for (const RunningGang& gang : snapshot.running)
    if (gang.amounts.slots > 0) runs[share(gang.job)].insert(gang.job);
  for (const GangRequest& request : snapshot.requests)
    if (request.recovering) runs[share(request.job)].insert(request.job);
  for (const GangPlacement& placement : plan.placements) {
    std::set<JobId>& of_user = runs[share(placement.job)];
    const bool is_new = of_user.insert(placement.job).second;
    if (is_new && std::ssize(of_user) > kUserRuns)
      Violate("a user runs no more than one may", share(placement.job).second + " runs " +
                                                      std::to_string(of_user.size()) +
                                                      " jobs with job " + placement.job.value);
  }
}

void Oracle::CheckUsage() {
  if (!has_users_) return;
  for (const std::string& share : coordinator_.store().usage())
    if (share.find('/') == std::string::npos)
      Violate("what a user had is the user's", "queue " + share + " has had something itself");
}

void Oracle::AfterNodeEvent(int index) {
  const SimNode& node = *nodes_[static_cast<std::size_t>(index)];
  CheckDevices(node);
  int living = 0;
  for (const ProcessPtr& process : node.processes()) living += HoldsSlot(*process) ? 1 : 0;
  if (living <= node.slots()) return;
  std::string who;
  for (const ProcessPtr& process : node.processes()) {
    if (!HoldsSlot(*process)) continue;
    who += " " + std::to_string(process->pid) + " of " + process->job.value + " g" +
           std::to_string(process->generation) + (process->unkillable ? " unkillable" : "") +
           (process->state == SimProcess::State::kParked ? " parked," : ",");
  }
  Violate("a slot has one process", "node " + node.name().value + " runs " +
                                        std::to_string(living) + " ranks in " +
                                        std::to_string(node.slots()) + " slots:" + who);
}

void Oracle::Trained(const JobId& job, Step step, Content content) {
  jobs_[job].contents[step].insert(content);
}

void Oracle::Resumed(const SimGang& gang, Step step, const std::string& from) {
  JobFacts& facts = jobs_[gang.job()];
  const std::string id = "job " + gang.job().value + " g" + std::to_string(gang.generation());
  if (step > 0 && !facts.contents[step].contains(gang.members().front()->content)) {
    Violate("a resume is a state that was",
            id + " at step " + std::to_string(step) + " from " + from);
  }
  if (gang.generation() < facts.resumed_by) return;  // one that is no longer listened to
  // A single fault costs one step at most where there are snapshots of every step: of a rank
  // always, of who holds its segments, or is done without, where there are buddies.
  const SimJobPlan& plan = plans_.at(gang.job());
  const std::map<int, int> nodes = FaultsOf(gang);
  int faults = 0;
  for (const auto& node : facts.nodes) {
    const auto now = nodes.find(node.first);
    faults += now == nodes.end() || now->second != node.second ? 1 : 0;
  }
  const bool buddies = plan.buddies && facts.nodes.size() > 1;
  const bool single = faults == 0 || (faults == 1 && buddies);
  if (plan.snapshots && single && facts.finished - step > 1) {
    Violate("one fault costs one step", id + " finished " + std::to_string(facts.finished) +
                                            " and resumed at " + std::to_string(step));
  }
  const bool kept =
      std::all_of(facts.stopped_on.begin(), facts.stopped_on.end(), [this](const auto& node) {
        const auto now = holder_faults_.find(node.first);
        return now == holder_faults_.end() || now->second == node.second;
      });
  if (kept && step < facts.stopped_at) {
    Violate("a stop costs no step", id + " stopped after " + std::to_string(facts.stopped_at) +
                                        " and resumed at " + std::to_string(step));
  }
  if (step < facts.set_aside_at) {
    Violate("a suspended job goes on where it was", id + " was set aside at " +
                                                        std::to_string(facts.set_aside_at) +
                                                        " and resumed at " + std::to_string(step));
  }
  facts.set_aside_at = 0;
  facts.stopped_at = 0;
  facts.finished = step;
  facts.resumed_by = gang.generation();
  facts.nodes = nodes;
}

std::map<int, int> Oracle::FaultsOf(const SimGang& gang) const {
  std::map<int, int> nodes;
  for (const ProcessPtr& member : gang.members()) {
    const auto faults = holder_faults_.find(member->node);
    nodes[member->node] = faults == holder_faults_.end() ? 0 : faults->second;
  }
  return nodes;
}

void Oracle::Stopped(const SimGang& gang, Step step) {
  JobFacts& facts = jobs_[gang.job()];
  facts.stopped_at = step;
  facts.stopped_on = FaultsOf(gang);
}

void Oracle::Doubled(const SimGang& gang, int rank) {
  Violate("a rank has one process", "job " + gang.job().value + " g" +
                                        std::to_string(gang.generation()) + " rank " +
                                        std::to_string(rank));
}

void Oracle::Joins(const SimGang& gang, const SimProcess& process) {
  const auto known = tokens_.emplace(std::pair(gang.job(), gang.generation()), process.token).first;
  if (process.token.empty() || known->second != process.token) {
    Violate("a generation has one token",
            "job " + gang.job().value + " g" + std::to_string(gang.generation()) + " rank " +
                std::to_string(process.rank) + " has '" + process.token + "'");
  }
}

void Oracle::FinishedStep(const SimGang& gang, Step step) {
  JobFacts& facts = jobs_[gang.job()];
  if (gang.generation() >= facts.resumed_by) facts.finished = std::max(facts.finished, step);
}

void Oracle::AtTheEnd() {
  CheckAudit();
  CheckUsage();
  for (const JobView& job : coordinator_.controller().Jobs()) CheckCalmAttempts(job);
  for (const NodeView& node : coordinator_.controller().Nodes()) {
    const int leaked = static_cast<int>(node.record->leaked.size());
    if (node.slots_used != leaked) {
      Violate("slots come back", "node " + node.record->name.value + " still counts " +
                                     std::to_string(node.slots_used) + " as used");
    }
  }
  for (const auto& node : nodes_) {
    for (const ProcessPtr& process : node->processes()) {
      if (process->alive() && !process->unkillable) {
        Violate("nothing is left", "process " + std::to_string(process->pid) + " of job " +
                                       process->job.value + " on " + node->name().value);
      }
    }
  }
}

// What a fault has left behind is over by then; only what gets lost within the cluster is not.
void Oracle::CheckCalmAttempts(const JobView& job) {
  for (const AttemptRecord& attempt : *job.attempts) {
    if (attempt.started_unix_ms < calm_unix_ms_ + kLingerMs) continue;
    if (attempt.cause_kind != CauseKind::kPrepareTimeout &&
        attempt.cause_kind != CauseKind::kLaunchTimeout &&
        attempt.cause_kind != CauseKind::kFormTimeout) {
      continue;
    }
    Violate("what is launched in calm starts", "generation " + std::to_string(attempt.generation) +
                                                   " of job " + job.record->id.value + ": " +
                                                   attempt.cause);
  }
}

}  // namespace muster::sim
