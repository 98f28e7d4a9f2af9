#include "coordinator/control/node_sessions.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/version.h"
#include "coordinator/control/archiving.h"
#include "coordinator/control/attempt_end.h"
#include "coordinator/control/checkpoints.h"
#include "coordinator/control/fault_injection.h"
#include "coordinator/control/gang_nodes.h"
#include "coordinator/control/gang_orders.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/preparing.h"
#include "coordinator/control/readings.h"
#include "coordinator/control/reconcile.h"
#include "coordinator/control/running.h"
#include "coordinator/control/silence.h"

namespace muster::control {
namespace {

constexpr std::uint64_t kMostEpochsAhead = 1 << 20;
constexpr Generation kMostGenerationsAhead = 1'000'000;

constexpr int kProgressMillis = 900;

// Slots that a guardian which must end may still hold. A Hello does not name all parked processes
// and standbys: those of an older generation live on in a guardian that is prepared. So a known job
// counts in full until the answer arrives.
int SlotsLeft(const JobEntry* job, const HostedGeneration& hosted) {
  const int living =
      static_cast<int>(hosted.started.size()) -
      static_cast<int>(hosted.quiesced ? hosted.started.size() : hosted.exited.size());
  const int kept = static_cast<int>(hosted.parked_ranks.size());
  return std::max({0, living, kept, job == nullptr ? 0 : job->spec.resources.ranks_per_node});
}

// A rank of a job that is not known here has at least one processor.
HeldResources LeftBehind(const JobEntry* job, const NodeName& node, int slots,
                         const HostedGeneration& hosted) {
  if (job != nullptr) return HeldBy(*job, node, slots, hosted.devices);
  return {.slots = slots, .devices = hosted.devices, .cpus = slots};
}

// The place of a node in the job's gang, while its ranks there have not ended; -1: none.
int UnendedMember(const JobEntry& job, const NodeName& name) {
  if (!job.gang) return -1;
  int found = -1;
  for (int n = 0; n < static_cast<int>(job.gang->nodes.size()); ++n) {
    const GangNode& member = job.gang->nodes[n];
    if (member.name == name && !member.quiesced) found = n;
  }
  return found;
}

// `job` and `hosted` may be null: unknown here, not hosted there.
ReconcileInput ReconcileInputOf(JobEntry* job, int node_rank, const HostedGeneration* hosted) {
  ReconcileInput input;
  if (job != nullptr) {
    input.job_known = true;
    input.job_over = job->at_rest();
    input.generation = job->record.generation;
    input.waiting = job->pending() && !job->attempts.empty();
    input.in_gang = node_rank >= 0;
    input.spare = input.in_gang && job->gang->nodes[node_rank].spare;
    if (input.in_gang) input.attempt = job->attempt().state;
  }
  if (hosted != nullptr) {
    input.hosted = true;
    input.hosted_generation = hosted->generation;
    input.prepared = hosted->prepared;
    input.launched = hosted->launched;
    input.quiesced = hosted->quiesced;
    input.kept = hosted->keeps_any();
  }
  return input;
}

// A worker reports what its own directory lists: another directory of the same boot and container
// proves nothing about what the node's earlier worker started.
bool ProvesNothing(const NodeRecord& known, const Hello& hello) {
  return !known.directory_id.empty() && !hello.directory_id.empty() &&
         known.directory_id != hello.directory_id && known.host_id == hello.host_id &&
         known.container_id == hello.container_id;
}

Status Admit(Transaction& tx, const WorkerHello& event) {
  const Hello& hello = event.hello;
  const std::string& name = hello.node.value;
  const NodeEntry* known = tx.FindNode(hello.node);
  const bool another =
      known != nullptr && known->session != 0 && known->record.instance != hello.instance;
  // A stream may stay open for a lease after its machine is gone. Another boot under the same name
  // proves that it is gone, unless the old worker still sends messages: then two machines have one
  // name.
  const bool rebooted = another && known->suspect && known->record.host_id != hello.host_id;
  if (another && !rebooted) {
    return AlreadyExists("a worker named " + name + " is connected already (pid " +
                         std::to_string(known->record.pid) +
                         "); stop it first or choose another --node");
  }
  if (known != nullptr && UsedSlots(tx.state, *known) > 0 && ProvesNothing(known->record, hello)) {
    return AlreadyExists(
        "node " + name + " may still run processes of a worker with another directory (pid " +
        std::to_string(known->record.pid) +
        "); start that worker again, reboot the machine, or choose another --node");
  }
  return OkStatus();
}

// The worker tries again, and is accepted once either of the two is upgraded.
void RefuseProtocol(Transaction& tx, const WorkerHello& event) {
  const Hello& hello = event.hello;
  const VersionRange theirs{hello.min_protocol_version, hello.protocol_version};
  const bool worker_is_older = theirs.max < kProtocols.min;
  tx.out.sends.push_back({event.session, hello.node,
                          Refused{.reason = RefusalReason::kProtocolVersion,
                                  .min_protocol_version = kProtocols.min,
                                  .max_protocol_version = kProtocols.max}});
  tx.out.closes.push_back(
      {event.session,
       FailedPrecondition("the worker of node " + hello.node.value + " (version " + hello.version +
                          ") speaks " + ProtocolText(theirs) + ", this coordinator (version " +
                          kVersion + ") speaks " + ProtocolText(kProtocols) + "; upgrade " +
                          (worker_is_older ? "the worker" : "the coordinator"))});
}

// A node that returns in another pilot job is new to the cluster: a drain of the previous one does
// not apply. An operator cannot have drained this one, because then it would not have been
// requested.
void TakePilot(Transaction& tx, NodeEntry& node, const std::string& pilot) {
  NodeRecord& record = node.record;
  const bool another = !record.pilot.empty() && !pilot.empty() && record.pilot != pilot;
  record.pilot = pilot;
  if (!another || record.drain_reason.empty()) return;
  record.ClearDrain();
  if (record.state == NodeState::kDraining || record.state == NodeState::kDrained) {
    tx.Move(node, NodeEvent::kUndrain);
  }
}

// Jobs that have devices which are not there any more keep them: their ranks find out themselves.
void TakeInventory(Transaction& tx, NodeEntry& node, const NodeInventory& inventory) {
  const NodeInventory before = std::exchange(node.record.inventory, inventory);
  std::vector<std::string> warnings = ClaimDevices(tx.state, node, before.devices);
  const HoldLedger::Used used = tx.state.holds.UsedOf(node.record.name);
  std::vector<std::string> in_use = used.own.devices;
  in_use.insert(in_use.end(), used.lent.devices.begin(), used.lent.devices.end());
  for (const std::string& held : in_use) {
    const auto has = [&held](const NodeInventory& of) {
      return std::ranges::find(of.devices, held, &Device::id) != of.devices.end();
    };
    if (has(before) && !has(inventory))
      warnings.push_back("node " + node.record.name.value + " no longer reports device " + held +
                         ", which a job has");
  }
  for (std::string& warning : warnings)
    tx.RecordClusterEvent({"device_conflict", Severity::kWarning, std::move(warning)});
}

void Connect(Transaction& tx, NodeEntry& node, const WorkerHello& event) {
  if (node.session != 0) {
    tx.state.sessions.erase(node.session);
    const bool same = node.record.instance == event.hello.instance;
    tx.out.closes.push_back(
        {node.session, Aborted(same ? "a newer stream of the same worker has replaced this one"
                                    : "the node has booted again and has another worker now")});
    node.session = 0;  // nothing more is sent to that stream
    GiveUpReadingsOf(tx, node.record.name);
  }
  const Hello& hello = event.hello;
  NodeRecord& record = node.record;
  const bool is_new = record.name.empty();
  const NodeState before = record.state;
  if (record.host_id != hello.host_id) {
    // Another boot: nothing that ran before can still be there.
    record.leaked.clear();
    record.broken_devices.clear();
    tx.state.holds.Reboot(hello.node);
  }
  record.name = hello.node;
  record.address = hello.address;
  record.host_id = hello.host_id;
  if (record.slots != hello.slots) tx.state.unused_may_differ.insert(hello.node);
  record.slots = hello.slots;
  record.pid = hello.pid;
  record.version = hello.version;
  node.versions = hello.versions;
  record.metrics_port = hello.metrics_port;
  record.instance = hello.instance;
  record.directory_id = hello.directory_id;
  record.container_id = hello.container_id;
  record.last_seen_unix_ms = tx.now.unix_ms;
  node.session = event.session;
  record.failure_domain = hello.failure_domain;
  record.report = hello.report;
  TakeInventory(tx, node, hello.inventory);
  record.allows_faults = hello.allows_faults;
  TakePilot(tx, node, hello.pilot);
  node.heard_at = tx.now.mono;
  node.ready_at = tx.now.mono;
  node.suspect = false;
  node.check_at.reset();
  tx.state.sessions[event.session] = record.name;
  UpdateProbers(tx, node);
  tx.Move(node, NodeEvent::kHello);
  // Otherwise the reason why the node is not used stays.
  if (record.state == NodeState::kReady) record.reason.clear();
  // A drain of a node that was lost in the meantime still applies.
  if (record.state == NodeState::kReady && !record.drain_reason.empty()) {
    record.reason = "draining: " + record.drain_reason;
    tx.Move(node, NodeEvent::kDrain);
  }
  for (const JobId& id : tx.state.jobs_of.Of(record.name)) {
    JobEntry& job = tx.job(id);
    if (job.excluded.erase(record.name) > 0) tx.Changed(job);
  }
  if (is_new) {
    tx.RecordClusterEvent({"node_joined", Severity::kInfo,
                           "node " + record.name.value + " joined with " +
                               std::to_string(record.slots) +
                               (record.slots == 1 ? " slot" : " slots") + " at " + record.address});
  } else if (before == NodeState::kSuspect || before == NodeState::kLost) {
    tx.RecordClusterEvent(
        {"node_back", Severity::kInfo, "node " + record.name.value + " is connected again"});
  }
}

void Disconnect(Transaction& tx, NodeEntry& node, const std::string& why) {
  tx.state.sessions.erase(node.session);
  node.session = 0;
  UpdateProbers(tx, node);
  GiveUpReadingsOf(tx, node.record.name);
  node.record.last_seen_unix_ms = tx.now.unix_ms;
  AnswerFaultsOf(tx, node.record.name);
  MarkSuspect(tx, node, why);
}

void Adopt(Transaction& tx, const NodeName& node, const HostedGeneration& hosted) {
  for (RankStarted started : hosted.started) {
    started.job = hosted.job;
    started.generation = hosted.generation;
    Handle(tx, node, started);
  }
  for (TrainerReport report : hosted.reports) {
    report.job = hosted.job;
    report.generation = hosted.generation;
    Handle(tx, node, report);
  }
  for (RankExited exited : hosted.exited) {
    exited.job = hosted.job;
    exited.generation = hosted.generation;
    Handle(tx, node, exited);
  }
  if (hosted.quiesced)
    Handle(tx, node,
           Quiesced{.job = hosted.job,
                    .generation = hosted.generation,
                    .parked_ranks = hosted.parked_ranks,
                    .standbys = hosted.standbys});
}

void AbortStale(Transaction& tx, NodeEntry& node, const HostedGeneration& hosted) {
  const JobEntry& job = tx.job(hosted.job);
  tx.state.holds.Orphan(node.record.name, hosted.job, hosted.generation,
                        HeldBy(job, node.record.name, SlotsLeft(&job, hosted), hosted.devices));
  if (job.record.state == JobState::kRunning) {
    return tx.Send(node.record.name, Release{hosted.job});
  }
  tx.Send(node.record.name,
          Abort{.job = hosted.job,
                .generation = hosted.generation,
                .reason = "this generation is over; another one has taken its place",
                .grace_seconds = 0});
}

// What the node runs was decided after the state to which the store was put back, and so was the
// end of the attempt that the store knows.
void ReleaseAhead(Transaction& tx, JobEntry& job, GangNode& member,
                  const HostedGeneration& hosted) {
  member.ahead = true;
  tx.Send(member.name, Release{job.record.id});
  Fail(tx, job,
       {.kind = CauseKind::kGuardianLost,
        .node = member.name,
        .message = "node " + member.name.value + " has generation " +
                   std::to_string(hosted.generation) +
                   " of it, of which the store does not know: it is an older one that was restored",
        .at = tx.now.mono});
}

// A restore skips a thousand; a node that claims many more would use all numbers up.
void SkipGenerationsUpTo(Transaction& tx, JobEntry& job, Generation hosted) {
  JobRecord& record = job.record;
  if (job.at_rest() || hosted <= record.generation ||
      hosted - record.generation > kMostGenerationsAhead)
    return;
  record.next_generation = std::max(record.next_generation, hosted + 1);
  tx.Mark(job);
}

void ReconcileJob(Transaction& tx, NodeEntry& node, const JobId& id,
                  const HostedGeneration* hosted) {
  const NodeName name = node.record.name;
  JobEntry* job = tx.FindJob(id);
  const int node_rank = job == nullptr ? -1 : UnendedMember(*job, name);
  const ReconcileInput input = ReconcileInputOf(job, node_rank, hosted);
  if (job != nullptr) SkipGenerationsUpTo(tx, *job, input.hosted_generation);
  switch (Reconcile(input)) {
    case ReconcileAction::kNothing: return tx.state.holds.ProveTerminated(name, id);
    case ReconcileAction::kRelease:
      if (const int slots = SlotsLeft(job, *hosted); slots > 0 || !hosted->devices.empty())
        tx.state.holds.Orphan(name, id, hosted->generation, LeftBehind(job, name, slots, *hosted));
      return tx.Send(name, Release{id});
    case ReconcileAction::kReleaseAhead:
      return ReleaseAhead(tx, *job, job->gang->nodes[node_rank], *hosted);
    case ReconcileAction::kAbortStale: return AbortStale(tx, node, *hosted);
    case ReconcileAction::kHold:
      tx.state.holds.Park(name, id, hosted->generation,
                          HeldBy(*job, name, job->spec.resources.ranks_per_node,
                                 hosted->devices.empty() ? DevicesOn(job->attempts.back(), name)
                                                         : hosted->devices));
      if (!job->survivors) job->survivors.emplace();
      return;
    case ReconcileAction::kPrepare:
      // What it had prepared is gone, including a port that it had bound.
      job->gang->nodes[node_rank].prepared = false;
      if (hosted != nullptr) tx.state.holds.AddLeaving(name, id, hosted->devices);
      return SendPrepare(tx, *job, node_rank);
    case ReconcileAction::kAdoptPrepared:
      // A Hello does not contain the node's CUDA stack. The answer to a repeated Prepare does.
      if (UsesGpus(*job)) return SendPrepare(tx, *job, node_rank);
      return Handle(tx, name,
                    Prepared{.job = id,
                             .generation = hosted->generation,
                             .retryable = true,
                             .master_port = hosted->master_port});
    case ReconcileAction::kPrepareAndLaunch:
      if (hosted != nullptr) tx.state.holds.AddLeaving(name, id, hosted->devices);
      SendPrepare(tx, *job, node_rank);
      return SendLaunch(tx, *job, node_rank, node_rank + 1);
    case ReconcileAction::kLaunch: return SendLaunch(tx, *job, node_rank, node_rank + 1);
    case ReconcileAction::kAdopt:
      Adopt(tx, name, *hosted);
      if (const GangNode* member = FindMember(*job, name);
          member != nullptr && StopOf(*job->gang) != nullptr) {
        SendStop(tx, *job, *member);
      }
      return;
    case ReconcileAction::kAbort:
      if (hosted != nullptr) Adopt(tx, name, *hosted);
      if (job->gang) SendAbort(tx, *job, node_rank);
      return;
    case ReconcileAction::kQuiesced:
      if (hosted != nullptr) Adopt(tx, name, *hosted);
      if (hosted == nullptr)
        return Handle(tx, name, Quiesced{.job = id, .generation = input.generation});
      return Handle(tx, name,
                    Quiesced{.job = id,
                             .generation = input.generation,
                             .parked_ranks = hosted->parked_ranks,
                             .standbys = hosted->standbys});
    case ReconcileAction::kMissing:
      return RanksMissing(tx, *job, name, hosted == nullptr || hosted->quiesced);
  }
}

void ReconcileNode(Transaction& tx, NodeEntry& node, const Hello& hello) {
  const NodeName name = node.record.name;
  std::set<JobId> hosted;
  for (const HostedGeneration& generation : hello.hosted) hosted.insert(generation.job);
  tx.state.holds.ProveAllGoneBut(name, hosted);
  const std::vector<LeakedSlot> leaked = node.record.leaked;
  for (const LeakedSlot& slot : leaked) {
    if (!hosted.contains(slot.job)) MarkLeaked(tx, node, slot.job, {});
  }
  for (const HostedGeneration& generation : hello.hosted) {
    // What survived SIGKILL has devices that the job holds.
    if (!generation.devices.empty() && tx.state.holds.Find(name, generation.job) == nullptr)
      tx.state.holds.Orphan(
          name, generation.job, generation.generation,
          LeftBehind(tx.FindJob(generation.job), name,
                     SlotsLeft(tx.FindJob(generation.job), generation), generation));
    // The report of processes of older generations that run beside the newest may have been lost.
    if (!generation.unkillable_pids.empty())
      Handle(tx, name,
             Quiesced{.job = generation.job,
                      .generation = generation.generation - 1,
                      .unkillable_pids = generation.unkillable_pids});
    ReconcileJob(tx, node, generation.job, &generation);
  }
  const std::vector<JobId> jobs = tx.state.jobs_of.Of(name);
  for (const JobId& id : jobs) {
    if (hosted.contains(id)) continue;
    JobEntry& job = tx.job(id);
    if (job.gang) {
      ReconcileJob(tx, node, id, nullptr);
    } else if (job.at_rest() && std::erase(job.record.pending_release, name) > 0) {
      tx.Mark(job);
    }
  }
  for (const JobId& id : jobs) ResendCommitted(tx, tx.job(id), name);
}

// Epochs are counted, or seconds since 1970 after a restore. A node that claims more than could be
// is not believed: the counter would come to its end, and with it the cluster.
bool IsCredible(const Transaction& tx, std::uint64_t epoch) {
  const auto seconds = static_cast<std::uint64_t>(std::max<std::int64_t>(tx.now.unix_ms, 0)) / 1000;
  return epoch <= std::max(tx.options.epoch, seconds) + kMostEpochsAhead;
}

// The node would refuse to be commanded. Its coordinator leads in our place, or the store is an
// older one that was restored.
void RefuseLowerEpoch(Transaction& tx, const WorkerHello& event) {
  const Hello& hello = event.hello;
  if (IsCredible(tx, hello.epoch_met)) tx.out.higher_epoch = hello.epoch_met;
  tx.out.closes.push_back(
      {event.session,
       FailedPrecondition("node " + hello.node.value + " has served a coordinator of epoch " +
                          std::to_string(hello.epoch_met) + ", and this one has epoch " +
                          std::to_string(tx.options.epoch) + "; the worker tries again")});
}

}  // namespace

void On(Transaction& tx, const WorkerHello& event) {
  const Hello& hello = event.hello;
  const auto protocol =
      CommonVersion(kProtocols, {hello.min_protocol_version, hello.protocol_version});
  if (!protocol) return RefuseProtocol(tx, event);
  if (tx.options.epoch > 0 && hello.epoch_met > tx.options.epoch)
    return RefuseLowerEpoch(tx, event);
  if (Status status = Admit(tx, event); !status.ok()) {
    tx.out.closes.push_back({event.session, std::move(status)});
    return;
  }
  NodeEntry& node = tx.state.nodes[hello.node];
  Connect(tx, node, event);
  tx.Send(hello.node, Welcome{.protocol_version = *protocol,
                              .min_protocol_version = kProtocols.min,
                              .max_protocol_version = kProtocols.max,
                              .cluster = tx.options.cluster,
                              .heartbeat_ms = tx.options.heartbeat_ms,
                              .progress_ms = kProgressMillis,
                              .epoch = tx.options.epoch});
  ReconcileNode(tx, node, hello);
  RescheduleFor(tx.state, node);
}

void On(Transaction& tx, const WorkerStreamClosed& event) {
  const auto session = tx.state.sessions.find(event.session);
  if (session == tx.state.sessions.end()) return;  // replaced or refused before
  Disconnect(tx, tx.node(session->second), "its stream broke");
}

void Handle(Transaction& tx, const NodeName& node, const Released& message) {
  tx.state.holds.ProveTerminated(node, message.job);
  MarkLeaked(tx, tx.node(node), message.job, {});
  tx.state.reschedule = true;
  JobEntry* job = tx.FindJob(message.job);
  if (job == nullptr) return;
  if (GangNode* member = FindMember(*job, node)) {
    // Else it was given to the gang again in the meantime.
    if (std::exchange(member->ahead, false))
      Handle(tx, node, Quiesced{.job = message.job, .generation = job->record.generation});
    return;
  }
  if (std::erase(job->record.pending_release, node) == 0) return;
  tx.Mark(*job);
  if (job->over()) PlanArchiving(tx, *job);
}

}  // namespace muster::control
