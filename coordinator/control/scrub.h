// Scrubs: when which committed checkpoint is read again, by whom, and what follows from what was
// found. docs/checkpoint-format.md, "Read again", says what is promised.
//
// A part of ControllerCore (core.h), which owns it and whose records it changes; what it knows of a
// job is JobEntry::verification and JobEntry::scrub. Nothing of it is stored but the result: a
// coordinator that starts again plans anew by when each checkpoint was verified last.
//
// The first reading is the verification: once the commit record is written, each node reads the
// shards of its own ranks, at once and at full speed. One checkpoint of a job at a time, and after
// it the newest one alone. Where the nodes cannot tell, it is left to the scrub.
//
// A scrub reads in the background: one order at a time for a job and for a node. A round is about
// one checkpoint: nodes are asked one after the other until one of them can tell, those of the
// newest attempt first. Only bytes that are wrong, or files that a node of the gang's does not find
// in the job's own directory, are damage.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/control/events.h"
#include "coordinator/control/state.h"

namespace muster {

class ControllerCore;

class Scrubs {
 public:
  explicit Scrubs(ControllerCore& core) : core_(core) {}

  // Nothing: no scrub is due, and none is out.
  std::optional<TimePoint> NextDeadline() const;
  // Starts what is due, gives up what takes too long.
  void Run();
  // The job is there, and its output directory is its own from now on. Before Plan.
  void Register(const JobRecord& job);
  // Whether no newer job writes to its output directory.
  bool OwnsOutput(const JobEntry& job) const;
  // The job's checkpoints, or its state, are not what they were.
  void Plan(JobEntry& job);
  // Its commit record is written. The one that waits to be verified, if any, is not waited for any
  // more.
  void Verify(JobEntry& job, const CheckpointRecord& checkpoint);
  void Start(const VerifyRequested& request);
  // Goes on with what the request began, but answers it no more.
  void Forget(const CallerGone& gone);
  void Answered(const NodeName& node, const CheckpointScrubbed& answer);
  // Its stream has ended, and with it what it was to answer.
  void NodeLost(const NodeName& node);

 private:
  using Parts = std::map<NodeName, std::vector<ShardInfo>>;

  // --- verification ---
  void StartVerification(JobEntry& job);
  Parts PartsOf(const JobEntry& job, const CheckpointRecord& checkpoint) const;
  void SendParts(JobEntry& job, const CheckpointRecord& checkpoint, const Parts& parts);
  void PartAnswered(JobEntry& job, const NodeName& node, const CheckpointScrubbed& answer);
  void EndVerification(JobEntry& job);   // its orders are no longer out
  void VerificationOver(JobEntry& job);  // what comes next

  // --- scrubs ---
  bool Connected(const NodeName& name) const;
  bool LeftToVerification(const JobEntry& job) const;
  bool CanBeRead(const JobEntry& job, const CheckpointRecord& checkpoint) const;
  void SetTime(JobEntry& job, std::optional<TimePoint> at);
  void NoteReadTimes(JobEntry& job);
  bool IsAutomatic(const JobEntry& job) const;
  // When this one is to be read again; nothing: never.
  std::optional<TimePoint> Due(const JobEntry& job, const CheckpointRecord& checkpoint) const;
  CheckpointRecord* Next(JobEntry& job);
  void ReadNext(JobEntry& job);
  std::vector<NodeName> Readers(const JobEntry& job) const;
  void Send(JobEntry& job, const CheckpointRecord& checkpoint, const NodeName& node);
  void ReleaseOrder(JobEntry& job);  // the order is no longer out
  void Whole(JobEntry& job, CheckpointRecord& checkpoint);
  void Damaged(JobEntry& job, CheckpointRecord& checkpoint, const std::string& found);
  void NobodyCanRead(JobEntry& job, const CheckpointRecord& checkpoint);
  void Reply(JobEntry& job, Status status);

  ControllerCore& core_;
  std::set<std::pair<TimePoint, JobId>> times_;  // JobEntry::scrub.at of those that have one
  std::map<NodeName, JobId> reading_;            // for which job a node scrubs
  std::map<std::uint64_t, JobId> verifying_;     // orders that are out
  std::set<std::pair<TimePoint, JobId>> give_up_times_;  // of verifications
  std::map<std::string, std::uint64_t> owners_;          // newest submission by output directory
  std::uint64_t newest_ = 0;                             // order
};

}  // namespace muster
