// Operations that make a store with a record of every kind, which fit each other. Tests only.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "common/audit/audit_chain.h"
#include "coordinator/control/effects.h"

namespace muster {

struct EveryRecordForTest {
  std::vector<StoreOperation> operations;

  // The first of this kind; tests change it.
  template <typename Operation>
  Operation& Get(std::size_t skipped = 0) {
    for (StoreOperation& each : operations)
      if (auto* found = std::get_if<Operation>(&each); found && skipped-- == 0) return *found;
    std::abort();
  }
};

inline std::string JobFileForTest(const std::string& name) {
  return "name: " + name +
         "\nworkdir: /w\ncommand: [\"true\"]\nresources: {nodes: 1, ranks_per_node: 1}\n";
}

inline JobRecord JobForTest(const std::string& id, std::uint64_t order, JobState state) {
  JobRecord job;
  job.id = JobId{id};
  job.name = "a/" + id;
  job.owner = "ada";
  job.key = "key " + id;
  job.spec_yaml = JobFileForTest("x" + id);
  job.output_dir = "/out/" + id;
  job.submit_order = order;
  job.state = state;
  return job;
}

inline AttemptRecord AttemptForTest(const std::string& job, Generation generation,
                                    AttemptState state) {
  AttemptRecord attempt;
  attempt.job = JobId{job};
  attempt.generation = generation;
  attempt.state = state;
  attempt.ended_unix_ms = state == AttemptState::kEnded ? 5 : 0;
  attempt.nodes = {NodeName{"n 1"}};
  attempt.node_devices = {{"gpu-" + job}};
  RankRecord rank;
  rank.node = NodeName{"n 1"};
  rank.pid = 7;
  rank.state = RankState::kRunning;
  attempt.ranks = {rank};
  return attempt;
}

inline CheckpointRecord CheckpointForTest(const std::string& job, Step step) {
  CheckpointRecord checkpoint;
  checkpoint.job = JobId{job};
  checkpoint.step = step;
  checkpoint.generation = 1;
  checkpoint.directory = "step-" + std::to_string(step);
  checkpoint.world_size = 1;
  checkpoint.shards.emplace_back();
  checkpoint.shards.back().file = "rank-0";
  checkpoint.state = CheckpointState::kCommitted;
  return checkpoint;
}

// An archived job ("a") with a job file of so many bytes, one that runs ("r", its second
// generation), one that waits ("q").
inline EveryRecordForTest EveryRecord(std::size_t job_file_bytes = 0) {
  EveryRecordForTest made;
  std::vector<StoreOperation>& all = made.operations;
  JobRecord archived = JobForTest("a", 1, JobState::kSucceeded);
  archived.generation = 1;
  archived.ended_unix_ms = 6;
  archived.spec_yaml += "# " + std::string(job_file_bytes, 'x') + "\n";
  JobRecord running = JobForTest("r", 2, JobState::kRunning);
  running.generation = 2;
  all = {PutJob{archived},
         PutAttempt{AttemptForTest("a", 1, AttemptState::kEnded)},
         PutCheckpoint{CheckpointForTest("a", 3)},
         ArchiveJob{ArchivedJobOf(archived)},
         PutArchivedTime{{1, 2, 3}},
         PutJob{JobForTest("q", 3, JobState::kQueued)},
         PutJob{running},
         PutAttempt{AttemptForTest("r", 1, AttemptState::kEnded)},
         PutAttempt{AttemptForTest("r", 2, AttemptState::kRunning)},
         PutCheckpoint{CheckpointForTest("r", 9)}};
  NodeRecord node;
  node.name = NodeName{"n 1"};
  node.state = NodeState::kReady;
  all.push_back(PutNode{node});
  all.push_back(PutQueues{{2, "queues: {default: {}, nlp: {}}\n"}});
  all.push_back(PutUsers{
      {3, "users: {ada: {}}\nroles:\n- {role: submitter, queues: [nlp], users: [ada]}\n"}});
  all.push_back(PutSecret{{.secret = {"ada", "nlp", "hf"},
                           .key_id = "k",
                           .own_key = "o",
                           .value = "v",
                           .updated_unix_ms = 1,
                           .updated_by = "ada"}});
  all.push_back(PutQueueUsage{"nlp", 0.1});
  all.push_back(PutQueueUsage{"nlp/ada", 1e300});
  all.push_back(PutQueueDay{{.queue = "nlp", .day = 20'000, .gpus = {1, 2}, .user = "ada"}});
  AuditHead head;
  for (std::uint64_t seq = 7; seq <= 9; ++seq) {
    EventRecord event;
    event.seq = seq;
    event.job = JobId{seq == 8 ? "" : "r"};
    event.kind = "placed";
    all.push_back(AppendEvent{event});
    std::string line = SealAuditEntry({.operation = "Cancel"}, &head);
    all.push_back(AppendAudit{head.seq, std::move(line)});
  }
  return made;
}

}  // namespace muster
