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
#include "coordinator/control/state.h"
#include "coordinator/domain/records.h"

namespace muster {

// What other programs say is kept up to here: of a reason, and of an event's sentence with one in
// it.
inline constexpr std::size_t kMaxReasonBytes = 1000;
inline constexpr std::size_t kMaxTextBytes = 2000;

class ControllerCore {
 public:
  explicit ControllerCore(ControllerOptions options) : options_(std::move(options)) {}

  // core.cc
  Effects Handle(const Event& event, Now now);
  std::optional<TimePoint> NextDeadline() const;
  // restore.cc
  Effects Restore(StoredState state, Now now);
  // queries.cc
  Result<JobView> FindJob(std::string_view job) const;
  std::vector<JobView> Jobs() const;
  std::vector<NodeView> Nodes() const;
  const std::deque<EventRecord>& Events() const { return events_; }
  Result<LogLocation> LocateLog(std::string_view job, int rank, Generation generation) const;
  int PendingJobs() const;

 private:
  // --- core.cc: dispatch, marks, time ---
  void On(const Tick&);
  void On(const WorkerSaid& said);
  Effects Flush();
  void ExpireJob(JobEntry& job);
  void PhaseExpired(JobEntry& job);
  void RungExpired(JobEntry& job);
  void Mark(JobEntry& job);         // its record, to be stored
  void MarkAttempt(JobEntry& job);  // its newest attempt and its record
  void Mark(NodeEntry& node);
  void Changed(JobEntry& job);  // its view only
  void Put(const CheckpointRecord& checkpoint);
  struct EventText {
    const char* kind;
    Severity severity = Severity::kInfo;
    std::string message;
  };
  void Tell(const JobEntry& job, EventText text);
  void TellCluster(EventText text);
  void Move(JobEntry& job, JobEvent event);
  void Move(AttemptRecord& attempt, AttemptEvent event);
  void Move(NodeEntry& node, NodeEvent event);
  bool Expired(const std::optional<TimePoint>& when) const { return when && *when <= now_.mono; }
  NodeEntry* FindNode(const NodeName& name);
  void Send(const NodeName& node, CoordinatorMessage message);

  // The one place where a message meets the generation: the job if `generation` is that of its
  // live attempt and `node` belongs to it, else nullptr and a count. `member` gets the gang's node.
  JobEntry* Fence(const NodeName& node, const JobId& id, Generation generation, GangNode** member);
  // Ranks of the newest attempt, which may be fewer than the job was submitted with.
  static int WorldSize(const JobEntry& job) {
    return static_cast<int>(job.attempts.back().ranks.size());
  }
  // Fence, and the rank is placed on that node.
  JobEntry* FenceRank(const NodeName& node, const JobId& id, Generation generation, int rank);

  // --- submit.cc ---
  void On(const SubmitRequested& request);
  Result<JobEntry*> AcceptJob(const SubmitRequested& request);
  Status CheckOutputFree(const std::string& output_dir) const;

  // --- cancel.cc ---
  void On(const CancelRequested& request);
  void StopJob(JobEntry& job, StopKind kind, std::string reason);
  // Terminal state, story, release of its guardians.
  void FinishJob(JobEntry& job, JobEvent event, std::string reason);
  void ReleaseNodes(JobEntry& job);

  // --- placement.cc ---
  void Schedule();
  // By ranks of live gangs, leftovers and withheld; nodes without any are missing.
  std::map<NodeName, int> UsedSlots() const;
  bool FormerNodeSuspect(const JobEntry& job) const;
  void SetWaitReason(JobEntry& job, const std::string& reason);
  void StartAttempt(JobEntry& job, const std::vector<NodeName>& nodes);
  void SendPrepare(JobEntry& job, int node_rank);
  void SendLaunch(JobEntry& job, int node_rank);
  void Handle(const NodeName& node, const Prepared& message);
  Duration RungBudget(const JobEntry& job) const;
  void LaunchGang(JobEntry& job);

  // --- attempt.cc: what living ranks say ---
  void Handle(const NodeName& node, const RankStarted& message);
  void Handle(const NodeName& node, const RankExited& message);
  void Handle(const NodeName& node, const TrainerReport& message);
  void Handle(const NodeName& node, const Progress& message);
  void Handle(const NodeName& node, const Heartbeat&);
  void CheckAllStarted(JobEntry& job);
  void OnFormed(JobEntry& job, int rank);
  void OnResumed(JobEntry& job, int rank, const Resumed& resumed);
  void CountLostSteps(JobEntry& job, Step resumed_step);
  void OnFirstStep(JobEntry& job, const FirstStep& first);
  void OnFinished(JobEntry& job, const Finished& finished);
  // The gang works: the job runs, and a recovery is over.
  void NowRunning(JobEntry& job);
  void TellRecovered(JobEntry& job);
  void SeeStep(JobEntry& job, Step step);
  // Adds a note to the newest attempt; false when it is there already (a replay).
  bool Note(JobEntry& job, std::string note);

  // --- recovery.cc ---
  void Handle(const NodeName& node, const Quiesced& message);
  void Fail(JobEntry& job, Failure failure);
  void OnTrainerError(JobEntry& job, int rank, const TrainerError& error);
  // A rank that lost its peers, or has parked for it.
  void OnSymptom(JobEntry& job, int rank, const std::string& message);
  void AddFailure(JobEntry& job, Failure failure);
  void FaultPatienceOver(JobEntry& job);
  void AbortFailed(JobEntry& job);
  void RecordCause(JobEntry& job);
  struct AbortOptions {
    std::string reason;
    Duration grace = Duration::zero();
    bool keep = false;  // survivors keep their processes
  };
  void BeginAbort(JobEntry& job, AbortOptions options);
  void SendAbort(JobEntry& job, int node_rank);
  void WithholdUnkillable(JobEntry& job, NodeEntry& node, const std::vector<std::int64_t>& pids);
  void LeaveBehind(JobEntry& job, GangNode& member);  // done with it unproven
  // The node has proved itself empty, but for these.
  void MemberQuiesced(JobEntry& job, GangNode& member, const Quiesced& message);
  void MaybeEndAttempt(JobEntry& job);
  void EndAttempt(JobEntry& job);
  void RecoverOrFail(JobEntry& job);

  // --- parking.cc ---
  static bool MayKeep(const JobEntry& job);
  void HoldParked(JobEntry& job);
  void EndParked(JobEntry& job, const NodeName& name);
  void EndAllParked(JobEntry& job);

  // --- checkpoints.cc ---
  void OnShardWritten(JobEntry& job, int rank, const ShardWritten& written);
  void OnCheckpointFailed(JobEntry& job, int rank, const CheckpointFailed& failed);
  void Commit(JobEntry& job, CheckpointRecord checkpoint);
  void PruneOld(JobEntry& job);
  void KeepPruned(JobEntry& job, const std::vector<std::string>& directories);
  void SendCommitted(JobEntry& job, const CheckpointRecord& checkpoint);
  void ResendCommitted(JobEntry& job, const NodeName& node);
  bool ManifestPending(const JobEntry& job) const;
  void RefuseCheckpoint(JobEntry& job, int rank, const RejectedCheckpoint& rejected);
  void DiscardUnfinished(JobEntry& job, Step before = std::numeric_limits<Step>::max());
  void Handle(const NodeName& node, const ManifestWritten& message);
  static std::vector<CheckpointRecord> ResumePoints(const JobEntry& job);
  static void UpdateCommittedStep(JobEntry& job);

  // --- nodes.cc ---
  void On(const WorkerHello& event);
  void On(const WorkerGone& event);
  void Handle(const NodeName& node, const Released& message);
  Status Admit(const WorkerHello& event);
  void Disconnect(NodeEntry& node, const std::string& why);
  void Connect(NodeEntry& node, const WorkerHello& event);
  void ReconcileNode(NodeEntry& node, const Hello& hello);
  void ReconcileJob(NodeEntry& node, const JobId& id, const HostedGeneration* hosted);
  void Adopt(const NodeName& node, const HostedGeneration& hosted);
  void AbortStale(NodeEntry& node, const HostedGeneration& hosted);
  void RanksMissing(JobEntry& job, const NodeName& node, bool nothing_hosted);
  void ExpireNode(NodeEntry& node);
  void LoseNode(NodeEntry& node);

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
  std::deque<EventRecord> events_;
  std::uint64_t next_seq_ = 1;
  std::uint64_t next_order_ = 1;
  bool reschedule_ = false;

  // Of the event under way.
  Effects out_;
  std::set<JobId> marked_jobs_;
  std::set<std::pair<JobId, Generation>> marked_attempts_;
  std::set<NodeName> marked_nodes_;
  std::set<JobId> changed_;
  std::vector<StoreOperation> other_operations_;  // checkpoints and events, in order
};

// --- words for messages ---

std::string SecondsText(double seconds);     // "0.71 s", "2 min 5 s"
std::string BytesText(std::uint64_t bytes);  // "12.3 MB"

}  // namespace muster
