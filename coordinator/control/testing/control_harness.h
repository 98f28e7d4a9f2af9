// ControlHarness: a Controller with a fake clock, a fake store and recorded messages, for tests.
//
// Tests play the workers: they send Hello, answer Prepare, exit ranks. The harness commits every
// store operation to a MemoryStore, so that Restart() gives what a killed coordinator finds when it
// starts again. After every event it checks the invariants (slots, generations, final states,
// usage).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/version.h"
#include "coordinator/control/controller.h"
#include "coordinator/store/testing/memory_store.h"

namespace muster {

// A job file: two nodes, one rank each, checkpoints kept: 2.
std::string TrainYaml(const std::string& name = "tiny", const std::string& more = "");
std::string CommandYaml(const std::string& name = "hello", const std::string& more = "");

class ControlHarness {
 public:
  explicit ControlHarness(ControllerOptions options = {});

  // --- time ---
  // Ticks at every deadline on the way. All connected workers send their heartbeats, except silent
  // ones.
  void Advance(Duration d);
  std::set<std::string> silent;
  void Oversleep(Duration d);      // handles nothing until then; afterwards whatever is due
  void SetWallClock(Duration by);  // forwards or back
  Now now() const { return now_; }

  // --- clients ---
  // Returns the id of the accepted job; fails the test on a refusal.
  JobId Submit(const std::string& yaml, const std::string& key = "");
  std::string user;  // who submits; empty: a client without a name
  Reply SubmitRaw(const std::string& yaml, const std::string& key = "");
  Reply Cancel(const JobId& id);
  Reply Suspend(const JobId& id, double by_seconds = 0);
  Reply Resume(const JobId& id);
  Reply Update(UpdateRequested request);
  Reply Hold(const JobId& id, const std::string& reason = "");
  Reply ReleaseHeld(const JobId& id);
  Reply Drain(const std::string& node, double by_seconds = 0);
  Reply Undrain(const std::string& node);
  Reply ApplyQueues(const std::string& yaml, std::uint64_t expected_version,
                    bool check_only = false);
  Reply Ask(QueuesApplyRequested request);
  Reply ApplyUsers(const std::string& yaml);  // in the place of those in force
  Actor submitter;                            // of Submit and SubmitRaw
  void SubmitAs(const std::string& user) { submitter = {.kind = Actor::Kind::kUser, .name = user}; }
  Reply Inject(InjectFaultRequested request);  // the newest reply, which may be an older one

  // --- workers ---
  struct NodeOptions {
    int slots = 1;
    std::string address = "127.0.0.1";
    std::string host_id = "host";
    std::string instance = "first";
    std::string directory_id = "dir";
    std::string container_id;
    int protocol_version = kProtocolVersion;
    int min_protocol_version = 0;  // 0: protocol_version
    std::vector<HostedGeneration> hosted;
    std::uint64_t epoch_met = 0;
    int metrics_port = 0;  // 0: it cannot be probed
    bool allows_faults = false;
    std::string failure_domain;
    std::string pilot;
    int gpus = 0;             // named NODE-gpu0, NODE-gpu1, ...
    NodeInventory inventory;  // besides those
  };
  SessionId Join(const std::string& node) { return Join(node, NodeOptions()); }
  SessionId Join(const std::string& node, NodeOptions options);
  void Leave(const std::string& node);  // the stream breaks
  void Deliver(const std::string& node, WorkerMessage message);
  void DeliverOn(SessionId session, WorkerMessage message);

  void PreparedOn(const std::string& node, const JobId& id);  // ok, newest generation
  void Started(const JobId& id, int rank);
  void Exited(const JobId& id, int rank, ProcessExit exit, double age_seconds = 0);
  void Ended(const JobId& id, int rank);  // by SIGKILL of its guardian, for an abort
  void QuiescedOn(const std::string& node, const JobId& id);
  void QuiesceAll(const JobId& id);  // every node of the newest attempt that is connected
  // As QuiescedOn; of the node's ranks those that had no exit are parked.
  void ParkedOn(const std::string& node, const JobId& id);
  void ParkAll(const JobId& id);
  void Report(const JobId& id, int rank, decltype(TrainerReport::body) body);
  void ReportAll(const JobId& id, decltype(TrainerReport::body) body);
  void StepTo(const JobId& id, Step step, double loss = 2.0);  // progress of rank 0
  void Shard(const JobId& id, int rank, Step step, std::optional<double> eval_loss = {});
  // The shards of all ranks.
  void Checkpoint(const JobId& id, Step step, std::optional<double> eval_loss = {});
  // The first node of the newest attempt has written it, and removed what it was asked to.
  void CommitRecord(const JobId& id, const std::string& directory, bool ok = true);
  // The parts that the job's nodes are ordered to read at once, by node; removes the orders.
  std::map<std::string, ScrubCheckpoint> TakeParts(const JobId& id);
  void AnswerPart(const std::string& node, const ScrubCheckpoint& part, ScrubOutcome outcome,
                  const std::string& detail = "");
  void ReadParts(const JobId& id);  // all of them whole
  // Writes the commit record. If ok, the checkpoint is read whole, and what it makes obsolete is
  // removed.
  void Manifest(const JobId& id, const std::string& directory, bool ok = true);
  std::string Directory(const JobId& id, Step step) const;  // of the newest generation

  // Everything from Prepare to the named state.
  void PrepareAll(const JobId& id);            // Launch is sent
  void StartAll(const JobId& id);              // every rank has a process
  void TrainFrom(const JobId& id, Step step);  // formed, resumed, first step done
  void RunTo(const JobId& id, Step step);      // all of the above, then progress
  void FinishAll(const JobId& id);             // every rank exits 0, nodes quiesced
  // What the node's guardian would report in a Hello about the newest attempt in the store.
  HostedGeneration Hosted(const std::string& node, const JobId& id, AttemptState as) const;

  // --- the coordinator ---
  void Restart();  // killed and started again; every stream is broken
  // Before what was decided since `store` was copied was durable.
  void RestartFrom(MemoryStore store);
  void Handle(const Event& event);
  const Controller& controller() const { return *controller_; }
  const StoredState& stored() const { return stored_; }
  const ArchivedRecords& StoredArchive(const JobId& id) const { return store_.archive().at(id); }
  const MemoryStore& store() const { return store_; }
  void Store(StoreOperation operation);  // past the controller, as another version has it
  // What the store reads is handed over at once, or else by AnswerRecall.
  bool answers_recalls = true;
  std::vector<JobId> recalls;  // all that were asked for
  void AnswerRecall(const JobId& id);

  // --- what came out ---
  JobView Job(const JobId& id) const;
  const AttemptRecord& Attempt(const JobId& id) const;
  JobState State(const JobId& id) const { return Job(id).record->state; }
  NodeView Node(const std::string& name) const;
  bool HasEvent(const JobId& id, const std::string& kind, const std::string& part = "") const;
  int CountEvents(const JobId& id, const std::string& kind) const;
  std::string Timeline() const;  // every event, for failure messages
  // Takes the recorded messages of this type to this node; others stay.
  template <typename Message>
  std::vector<Message> Take(const std::string& node) {
    std::vector<Message> taken;
    std::vector<WorkerSend> rest;
    for (WorkerSend& send : sends_) {
      if (send.node.value == node && std::holds_alternative<Message>(send.message)) {
        taken.push_back(std::get<Message>(std::move(send.message)));
      } else {
        rest.push_back(std::move(send));
      }
    }
    sends_ = std::move(rest);
    return taken;
  }
  void Forget() { sends_.clear(); }
  const std::vector<WorkerSend>& sends() const { return sends_; }
  const Effects& last() const { return last_; }
  // The last event changed nothing; the audit trail may have its entry.
  bool LastWroteNothing() const;
  const Reply& LastReply() const { return replies_.back(); }
  std::vector<CloseSession> closes;
  std::uint64_t higher_epoch = 0;
  std::vector<Observation> observations;

 private:
  void AdvanceTo(TimePoint end);
  void Apply(const Effects& effects);
  void CheckInvariants();
  void CheckUsage();

  ControllerOptions options_;
  Now now_;
  std::unique_ptr<Controller> controller_;
  MemoryStore store_;
  StoredState stored_;  // what a start would load
  std::vector<WorkerSend> sends_;
  std::map<std::string, std::vector<std::string>> to_prune_;  // by committed directory
  std::vector<Reply> replies_;
  Effects last_;
  std::map<std::string, SessionId> sessions_;
  std::map<JobId, Generation> generations_;
  std::map<JobId, JobState> final_;
  // A job's time by the harness's own clock, and the figures that were shown last.
  struct Booked {
    TimePoint at;
    int ranks = 0;
    double rank_seconds = 0;
    RankMicros shown = {};
  };
  std::map<JobId, Booked> booked_;
  SessionId next_session_ = 1;
  RequestId next_request_ = 1;
  int next_id_ = 1;
};

// A cluster with a job on its first two nodes; a train job has trained to step 12. Messages sent
// until then are discarded.
struct RunningJob : ControlHarness {
  explicit RunningJob(const std::string& yaml = TrainYaml(), ControllerOptions options = {},
                      const std::vector<std::string>& nodes = {"n1", "n2"});
  // It succeeds, and leaves memory after the default retention.
  void ArchiveIt();
  JobId id;
};

}  // namespace muster
