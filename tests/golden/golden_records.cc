#include "tests/golden/golden_records.h"

#include <gtest/gtest.h>

#include <future>

namespace muster::golden {
namespace {

const GoodputUsage kUsage{{1, 2, 3, 4, 5, 6, 7}, 8, {TimeState::kStep, true, 4}};

JobRecord Job() {
  return {.id = JobId{"00c0ffee10"},
          .name = "llama \"chat\" \xc3\xa9",
          .owner = "alice",
          .submitter = "root",
          .key = "key",
          .spec_yaml = "name: llama\n",
          .output_dir = "/jobs/out",
          .priority = 7,
          .submit_order = 11,
          .world_size = 4,
          .state = JobState::kRecovering,
          .reason = "why",
          .stop = StopKind::kTimeLimit,
          .generation = 3,
          .next_generation = 1004,
          .restarts = 2,
          .attempts_without_progress = 1,
          .step = 40,
          .best_step = 41,
          .committed_step = 30,
          .max_steps = 100,
          .loss = 1.25,
          .loss_at_start = 4.5,
          .tokens = 1234567890123,
          .submitted_unix_ms = 1,
          .started_unix_ms = 2,
          .ended_unix_ms = 3,
          .progress_unix_ms = 4,
          .pending_release = {NodeName{"n1"}, NodeName{"n2"}},
          .scrub_trouble = "not mounted",
          .stop_by_unix_ms = 5,
          .suspended_unix_ms = 6,
          .suspended_ms = 7,
          .checkpoint_seconds = 8.5,
          .queue = "team-a",
          .priority_class = "high",
          .held = true,
          .hold_reason = "no data yet",
          .begin_unix_ms = 9,
          .time_limit_seconds = 10,
          .promise = {.start_unix_ms = 11, .nodes = {NodeName{"n1"}}, .devices = {{"GPU-1"}}},
          .reclaim = {.claimant = JobId{"00c0ffee20"},
                      .generation = 3,
                      .gives_up = {NodeName{"n2"}},
                      .by_unix_ms = 12},
          .victim_unix_ms = 13,
          .usage = kUsage};
}

AttemptRecord Attempt(const JobId& job) {
  return {.job = job,
          .generation = 3,
          .state = AttemptState::kAborting,
          .started_unix_ms = 5,
          .ended_unix_ms = 6,
          .nodes = {NodeName{"n1"}},
          .spares = {NodeName{"n2"}},
          .lent = {NodeName{"n1"}},
          .node_devices = {{"GPU-1", "GPU-2"}},
          .spare_devices = {{"GPU-3"}},
          .ranks = {{.rank = 0,
                     .local_rank = 1,
                     .node_rank = 2,
                     .node = NodeName{"n1"},
                     .pid = 77,
                     .state = RankState::kExited,
                     .end = {.exit = {.exit_code = 3, .signal = 9},
                             .node_stopped = true,
                             .ended = true,
                             .out_of_memory = true,
                             .asked_to_stop = true}}},
          .tier = Tier::kShrink,
          .master_address = "127.0.0.1",
          .master_port = 29500,
          .rendezvous_token = "aabb",
          .cause_kind = CauseKind::kRankKilled,
          .retryable = false,
          .cause = "rank 0 was killed by SIGKILL",
          .failed_rank = 0,
          .failed_node = NodeName{"n1"},
          .card = {.what = "SIGKILL",
                   .step = 15,
                   .phase = "backward",
                   .micro_batch = 2,
                   .last_collective = "world: 812 enqueued",
                   .facts = {"a fact"},
                   .advice = "do"},
          .resumed_step = 12,
          .resumed_from = "snapshot",
          .last_step = 15,
          .lost_steps = 3,
          .seconds = {.detect = 0.5, .abort = 1.5, .reform = 2.5, .load = 3.5, .first_step = 4.5},
          .notes = {"a note"},
          .log_tail = {"last", "words"}};
}

CheckpointRecord Checkpoint(const JobId& job) {
  return {.job = job,
          .step = 50,
          .generation = 2,
          .directory = "step-00000050-g2",
          .world_size = 2,
          .shards = {{.rank = 1, .file = "rank-00001.shard", .bytes = 9, .checksum = "xxh3:1"}},
          .committed_unix_ms = 8,
          .state = CheckpointState::kPruning,
          .manifest_written = true,
          .refused = "refused",
          .verified_unix_ms = 9,
          .evaluated = true,
          .eval_loss = 2.5};
}

NodeRecord Node() {
  return {.name = NodeName{"n1"},
          .state = NodeState::kSuspect,
          .reason = "why",
          .address = "10.0.0.1",
          .host_id = "host",
          .slots = 8,
          .inventory = {.devices = {{.id = "GPU-1",
                                     .kind = "H100",
                                     .memory_bytes = 80,
                                     .numa_node = 1,
                                     .link_domain = "0",
                                     .fault = "lost",
                                     .fake = true,
                                     .shared = true}},
                        .cpus = 64,
                        .memory_bytes = 512,
                        .labels = {{"pool", "a"}},
                        .topology = {.block = "b", .rack = "r", .switch_name = "s"}},
          .broken_devices = {{.id = "GPU-1", .reason = "Xid 79"}},
          .leaked = {{.job = JobId{"00c0ffee10"}, .pid = 55, .devices = {"GPU-1"}}},
          .pid = 66,
          .version = "0.2.0",
          .metrics_port = 9100,
          .instance = "instance",
          .directory_id = "directory",
          .container_id = "container",
          .last_seen_unix_ms = 12,
          .failure_domain = "rack 1",
          .allows_faults = true,
          .drain_reason = "for repair",
          .drain_cause = DrainCause::kPilot,
          .drain_by_unix_ms = 13,
          .notices = {{.kind = "memory", .detail = "98 % used", .in_use = {"GPU-1"}}},
          .pilot = "p-1",
          .report = {"between nodes: sockets"},
          .unused = {{0, 0, 0, 0, 0, 0, 14}, 15, {TimeState::kIdle, false, 16}}};
}

EventRecord Event(std::uint64_t seq, const JobId& job) {
  return {.seq = seq,
          .unix_ms = 8,
          .job = job,
          .generation = 2,
          .kind = "launched",
          .severity = Severity::kWarning,
          .message = "text"};
}

}  // namespace

GoldenRecords MakeGoldenRecords() {
  const JobRecord job = Job();
  GoldenRecords made;
  JobRecord& old = made.archived.job = job;
  old.id = JobId{"00c0ffee20"};
  old.name = "old";
  old.key = "another key";
  old.submit_order = 5;
  old.state = JobState::kFailed;
  made.archived.attempts = {Attempt(old.id)};
  made.archived.checkpoints = {Checkpoint(old.id)};
  const SecretRecord secret{.secret = {.owner = "alice", .queue = "team-a", .name = "token"},
                            .key_id = "k1",
                            .own_key = "b3du",
                            .value = "dmFsdWU=",
                            .updated_unix_ms = 3,
                            .updated_by = "alice"};
  const QueueDayRecord day{.queue = "team-a",
                           .day = 20000,
                           .gpus = {.productive = 1, .lost = 2},
                           .slots = {.productive = 3, .lost = 4},
                           .user = "alice"};
  StoredState& state = made.state;
  state.jobs = {job};
  state.attempts = {Attempt(job.id)};
  state.checkpoints = {Checkpoint(job.id)};
  state.nodes = {Node()};
  state.events = {Event(1, job.id), Event(2, {})};
  state.archived = {ArchivedJobOf(old)};
  state.archived_time = {7, 6, 5, 4, 3, 2, 1};
  state.queues = {.version = 4, .yaml = "queues: {}\n"};
  state.users = {.version = 5, .yaml = "users: {}\n"};
  state.secrets = {secret};
  state.queue_usage = {{"team-a", 12.5}};
  state.queue_days = {day};
  const std::string line = SealAuditEntry({.operation = "Submit"}, &state.audit);
  made.operations = {PutJob{old},
                     PutAttempt{made.archived.attempts[0]},
                     PutCheckpoint{made.archived.checkpoints[0]},
                     ArchiveJob{state.archived[0]},
                     PutJob{job},
                     PutAttempt{state.attempts[0]},
                     PutCheckpoint{state.checkpoints[0]},
                     PutNode{state.nodes[0]},
                     AppendEvent{state.events[0]},
                     AppendEvent{state.events[1]},
                     PutArchivedTime{state.archived_time},
                     PutQueues{state.queues},
                     PutUsers{state.users},
                     AppendAudit{state.audit.seq, line},
                     PutSecret{secret},
                     PutQueueUsage{"team-a", 12.5},
                     PutQueueDay{day}};
  return made;
}

void ExpectGoldenRecords(Store& store) {
  const GoldenRecords expected = MakeGoldenRecords();
  const auto state = store.Load();
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  EXPECT_EQ(state->jobs, expected.state.jobs);
  EXPECT_EQ(state->attempts, expected.state.attempts);
  EXPECT_EQ(state->checkpoints, expected.state.checkpoints);
  EXPECT_EQ(state->nodes, expected.state.nodes);
  EXPECT_EQ(state->events, expected.state.events);
  EXPECT_EQ(state->archived, expected.state.archived);
  EXPECT_EQ(state->archived_time, expected.state.archived_time);
  EXPECT_EQ(state->queues, expected.state.queues);
  EXPECT_EQ(state->users, expected.state.users);
  EXPECT_EQ(state->audit, expected.state.audit);
  EXPECT_EQ(state->secrets, expected.state.secrets);
  EXPECT_EQ(state->queue_usage, expected.state.queue_usage);
  EXPECT_EQ(state->queue_days, expected.state.queue_days);
  std::promise<Result<std::vector<ArchivedRecords>>> read;
  store.ReadArchive(
      {.job = expected.archived.job.id},
      [&](Result<std::vector<ArchivedRecords>> found) { read.set_value(std::move(found)); });
  const auto archived = read.get_future().get();
  ASSERT_TRUE(archived.ok()) << archived.status().ToString();
  ASSERT_EQ(archived->size(), 1u);
  EXPECT_EQ(archived->front().job, expected.archived.job);
  EXPECT_EQ(archived->front().attempts, expected.archived.attempts);
  EXPECT_EQ(archived->front().checkpoints, expected.archived.checkpoints);
}

}  // namespace muster::golden
