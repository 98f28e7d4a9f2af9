// ControllerCore: the state behind Controller and the handlers that change it, one source file per
// subject (listed below). Private to coordinator/control; see controller.h for the contract.
//
// A handler changes records in place, marks them, and adds sends and events to the effects of the
// event under way; Flush then writes each marked record once. Handlers are idempotent: workers
// repeat after a reconnect all that they know.
#pragma once

#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/control/controller.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/scrub.h"
#include "coordinator/control/slot_ledger.h"
#include "coordinator/control/words.h"
#include "coordinator/scheduler/scheduler.h"

namespace muster {

class ControllerCore {
 public:
  explicit ControllerCore(ControllerOptions options) : options_(std::move(options)) {}

  // core.cc
  Effects Handle(const Event& event, Now now);
  std::optional<TimePoint> NextDeadline() const { return next_deadline_; }
  // restore.cc
  Effects Restore(StoredState state, Now now);
  // queries.cc, goodput.cc
  Result<JobView> FindJob(std::string_view job) const;
  std::vector<JobView> Jobs() const;
  std::vector<NodeView> Nodes() const;
  const std::deque<EventRecord>& Events() const { return events_; }
  Result<LogLocation> LocateLog(std::string_view job, int rank, Generation generation) const;
  int PendingJobs() const;
  Goodput ClusterGoodput(TimePoint now, bool stored) const;

 private:
  friend class Scrubs;
  // --- core.cc: dispatch, marks, time ---
  void On(const Tick&);
  void On(const WorkerMessageReceived& said);
  void On(const ClusterNote& note) { RecordClusterEvent({note.kind, note.severity, note.message}); }
  Effects Flush();
  std::optional<TimePoint> EarliestDeadline() const;
  void ExpireJob(JobEntry& job);
  void PhaseExpired(JobEntry& job);
  void TierExpired(JobEntry& job);
  void Mark(JobEntry& job);         // its record, to be stored
  void MarkAttempt(JobEntry& job);  // its newest attempt and its record
  void Mark(NodeEntry& node);
  void Changed(JobEntry& job);  // its view only
  void Put(const CheckpointRecord& checkpoint);
  void RecordEvent(const JobEntry& job, EventText text);
  void RecordClusterEvent(EventText text);
  void Move(JobEntry& job, JobEvent event);
  void Move(AttemptRecord& attempt, AttemptEvent event);
  void Move(NodeEntry& node, NodeEvent event);
  bool Expired(const std::optional<TimePoint>& when) const { return when && *when <= now_.mono; }
  NodeEntry* FindNode(const NodeName& name);
  void Send(const NodeName& node, CoordinatorMessage message);

  // The one place where a message meets the generation: the job if `generation` is that of its
  // live attempt and `node` belongs to it, else nullptr and a count. `member` gets the gang's node.
  JobEntry* Fence(const NodeName& node, const JobId& id, Generation generation, GangNode** member);
  JobEntry* FenceRank(const NodeName& node, const JobId& id, Generation generation, int rank);

  // --- submit.cc, cancel.cc, suspend.cc, goodput.cc ---
  void On(const SubmitRequested& request);
  Result<JobEntry*> AcceptJob(const SubmitRequested& request);
  Status CheckOutputFree(const std::string& output_dir) const;
  void On(const CancelRequested& request);
  void StopJob(JobEntry& job, StopKind kind, std::string reason);
  void AbortStopped(JobEntry& job);
  void FinishJob(JobEntry& job, JobEvent event, std::string reason);  // for good, or to suspend it
  void EndStopped(JobEntry& job);
  void ReleaseNodes(JobEntry& job);
  void ReleaseFormerNodes(JobEntry& job);
  void On(const SuspendRequested& request);
  void On(const ResumeRequested& request);
  void Suspend(JobEntry& job, const SuspendRequested& request);
  void Resume(JobEntry& job);
  void AccrueTime(JobEntry& job);
  void BookUnused();

  // --- placement.cc ---
  void Schedule();
  int UsedSlots(const NodeEntry& node) const;  // held, and leaked
  std::vector<JobId> GpuJobsOn(const NodeEntry& node) const;
  bool FormerNodeSuspect(const JobEntry& job) const;
  void SetWaitReason(JobEntry& job, const std::string& reason);
  GangRequest RequestOf(const JobEntry& job) const;
  void StartAttempt(JobEntry& job, const GangPlacement& placement);
  void NoteUnreleased(JobEntry& job, const NodeName& node);
  void SendPrepare(JobEntry& job, int node_rank);
  void SendLaunch(JobEntry& job, int first_node, int last_node);  // not last_node itself
  void Handle(const NodeName& node, const Prepared& message);
  void SparePrepared(JobEntry& job, GangNode& member, const Prepared& message);
  std::optional<TimePoint> TierDeadline(const JobEntry& job, TimePoint from) const;
  void LaunchGang(JobEntry& job);
  void WatchFromStart(JobEntry& job);

  // --- attempt.cc: what living ranks say ---
  void Handle(const NodeName& node, const RankStarted& message);
  void Handle(const NodeName& node, const RankExited& message);
  void Handle(const NodeName& node, const TrainerReport& message);
  void Handle(const NodeName& node, const Progress& message);
  void Handle(const NodeName& node, const Heartbeat&);
  void Handle(const NodeName&, const LogChunk&) {}  // the service's
  void CheckAllStarted(JobEntry& job);
  void OnFormed(JobEntry& job, int rank);
  void OnResumed(JobEntry& job, int rank, const Resumed& resumed);
  void CountLostSteps(JobEntry& job, Step resumed_step);
  void OnFirstStep(JobEntry& job, const FirstStep& first);
  void OnFinished(JobEntry& job, const Finished& finished);
  void NowRunning(JobEntry& job);  // the gang works: a recovery is over
  void RecordRecovered(JobEntry& job);
  void ObserveStep(JobEntry& job, Step step);
  void Watch(JobEntry& job, const Progress& message);
  bool Note(JobEntry& job, std::string note);  // to its newest attempt; false: a replay

  // --- recovery.cc, abort.cc, parking.cc ---
  void Handle(const NodeName& node, const Quiesced& message);
  void Fail(JobEntry& job, Failure failure);
  void OnTrainerError(JobEntry& job, int rank, const TrainerError& error);
  void OnSymptom(JobEntry& job, int rank, const TrainerError& error);  // lost peers, or parked
  const Failure* AddFailure(JobEntry& job, Failure failure);
  void FaultTimeoutOver(JobEntry& job);
  void AbortFailed(JobEntry& job);
  void RecordCause(JobEntry& job);
  void BeginAbort(JobEntry& job, AbortOptions options);
  void SendAbort(JobEntry& job, int node_rank);
  bool GivenUpForWantOfRoom(JobEntry& job, NodeEntry& node);
  void MarkLeaked(NodeEntry& node, const JobId& id, const std::vector<std::int64_t>& pids);
  void Orphan(JobEntry& job, GangNode& member);  // done with it unproven
  void MemberQuiesced(JobEntry& job, GangNode& member, const Quiesced& message);
  void MaybeEndAttempt(JobEntry& job);
  void EndAttempt(JobEntry& job);
  void RecoverOrFail(JobEntry& job);
  void EndParked(JobEntry& job);  // nobody takes what is parked

  // --- checkpoints.cc ---
  void OnShardWritten(JobEntry& job, int rank, const ShardWritten& written);
  void OnCheckpointFailed(JobEntry& job, int rank, const CheckpointFailed& failed);
  bool CommitComplete(JobEntry& job);  // what has all its shards; false: nothing has
  bool CommitUnlessTooMany(JobEntry& job);
  void Commit(JobEntry& job, CheckpointRecord checkpoint);
  void PruneOld(JobEntry& job);
  void SendPruned(JobEntry& job);
  void ForgetPruned(JobEntry& job, const std::string& directory);
  void SendCommitted(JobEntry& job, const CheckpointRecord& checkpoint);
  void ResendCommitted(JobEntry& job, const NodeName& node);
  void RefuseCheckpoint(JobEntry& job, int rank, const RejectedCheckpoint& rejected);
  void DiscardUnfinished(JobEntry& job, Step before = std::numeric_limits<Step>::max());
  void Handle(const NodeName& node, const ManifestWritten& message);
  void Handle(const NodeName& node, const CheckpointScrubbed& m) { scrubs_.Answered(node, m); }
  void On(const VerifyRequested& request) { scrubs_.Start(request); }
  void On(const CallerGone& gone) { scrubs_.Forget(gone); }

  // --- nodes.cc ---
  void On(const WorkerHello& event);
  void On(const WorkerStreamClosed& event);
  void Handle(const NodeName& node, const Released& message);
  void RefuseProtocol(const WorkerHello& event);
  Status Admit(const WorkerHello& event);
  void Disconnect(NodeEntry& node, const std::string& why);
  void Connect(NodeEntry& node, const WorkerHello& event);
  void TakePilot(NodeEntry& node, const std::string& pilot);
  void ReconcileNode(NodeEntry& node, const Hello& hello);
  void ReconcileJob(NodeEntry& node, const JobId& id, const HostedGeneration* hosted);
  void Adopt(const NodeName& node, const HostedGeneration& hosted);
  void AbortStale(NodeEntry& node, const HostedGeneration& hosted);
  void RanksMissing(JobEntry& job, const NodeName& node, bool nothing_hosted);

  // --- probers.cc ---
  void CompensateForStall();
  void MarkSuspect(NodeEntry& node, const std::string& why);
  void MarkAlive(NodeEntry& node);
  void UpdateVoice(const NodeEntry& node);  // after a change of `session` or `suspect`
  void StartIndirectProbe(NodeEntry& node);
  void Handle(const NodeName& node, const ProbeResult& message);
  void CheckSilence(NodeEntry& node);
  void CloseStream(NodeEntry& node, const std::string& why);
  void DetectLostNode(NodeEntry& node);
  void LoseNode(NodeEntry& node, const std::string& reason);
  void LoseNodeTo(JobEntry& job, NodeEntry& node, const std::string& reason);

  // --- spares.cc, drain.cc ---
  bool WantsMoreNodes(const JobEntry& job) const;
  void GiveMoreNodes(JobEntry& job, const std::vector<NodeName>& nodes);
  void EndOnPurpose(JobEntry& job, CauseKind kind, const std::string& reason);
  void AddSpares(JobEntry& job, const std::vector<NodeName>& names);
  void Refuse(JobEntry& job, const NodeName& node, std::string why, bool first_pauses = true);
  void DropSpare(JobEntry& job, const NodeName& name, const std::string& why);
  void On(const DrainRequested& request);
  void On(const UndrainRequested& request);
  void Handle(const NodeName& node, const NodeNotice& notice);
  void ClearNotices(NodeEntry& node, const NodeNotice& clear);
  std::vector<JobId> JobsOn(const NodeName& name);
  void Drain(NodeEntry& node, DrainCause cause, const std::string& reason, double by_seconds);
  void ShortenDrainDeadline(NodeEntry& node, const std::string& detail, double by_seconds);
  void DrainJobs(NodeEntry& node);
  void CompleteDrains();
  void Quarantine(NodeEntry& node, const std::string& detail);
  void StopGang(JobEntry& job, const std::string& reason, std::optional<TimePoint> deadline);
  void SendStop(JobEntry& job, const GangNode& member);
  bool ExitedByStop(JobEntry& job, const ProcessExit& exit);
  void StopExpired(JobEntry& job);
  void GangStopped(JobEntry& job, const std::string& reason);

  // --- faults.cc ---
  void On(const InjectFaultRequested& request);
  Status InjectIntoRank(const InjectFaultRequested& request);
  Status InjectIntoNode(const InjectFaultRequested& request);
  void SendFault(const InjectFaultRequested& request, const NodeName& target, InjectFault fault);
  void Handle(const NodeName& node, const FaultDone& message);
  void AnswerFault(std::map<std::uint64_t, OrderedFault>::iterator fault, Status status);
  void AnswerFaultsOf(const NodeName& node);
  void ExpireFaults();

  // --- restore.cc ---
  void RestoreJob(JobEntry& job);
  void RestoreGang(JobEntry& job);

  const ControllerOptions options_;
  Now now_;  // of the event under way
  std::map<JobId, JobEntry> jobs_;
  std::vector<JobId> order_;  // of submission
  std::set<JobId> live_;      // not terminal
  std::map<std::string, JobId> keys_;
  std::map<NodeName, NodeEntry> nodes_;
  std::map<SessionId, NodeName> sessions_;  // current ones only
  std::set<NodeName> speaking_;             // connected and not suspect: can be probers
  std::set<NodeName> suspects_;
  NodeName last_witness_;  // they are asked in turn
  SlotLedger slots_;
  std::deque<EventRecord> events_;
  std::uint64_t next_seq_ = 1, next_order_ = 1, next_fault_ = 0, next_probe_ = 0;
  std::map<std::uint64_t, OrderedFault> faults_;  // by their number
  Scrubs scrubs_{*this};
  TimePoint handled_at_;  // the newest event
  std::optional<TimePoint> next_deadline_;
  bool reschedule_ = false;
  bool unused_may_differ_ = false;

  Effects out_;  // of the event under way, as what follows
  std::set<JobId> marked_jobs_;
  std::set<std::pair<JobId, Generation>> marked_attempts_;
  std::set<NodeName> marked_nodes_;
  std::set<JobId> changed_;
  std::vector<StoreOperation> other_operations_;  // checkpoints and events, in order
};

}  // namespace muster
