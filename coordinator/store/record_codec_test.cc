#include "coordinator/store/record_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace muster {
namespace {

using ::testing::HasSubstr;

JobRecord FullJob() {
  JobRecord job;
  job.id = JobId{"0123456789"};
  job.name = "llama \"chat\"\n";
  job.key = "key";
  job.spec_yaml = "name: llama\n";
  job.output_dir = "/out";
  job.priority = 7;
  job.submit_order = 11;
  job.world_size = 4;
  job.state = JobState::kRecovering;
  job.reason = "why";
  job.stop = StopKind::kTimeLimit;
  job.generation = 3;
  job.next_generation = 1003;
  job.restarts = 2;
  job.attempts_without_progress = 1;
  job.step = 40;
  job.best_step = 41;
  job.committed_step = 30;
  job.max_steps = 100;
  job.loss = 1.25;
  job.loss_at_start = 4.5;
  job.tokens = 1234567890123;
  job.submitted_unix_ms = 1;
  job.started_unix_ms = 2;
  job.ended_unix_ms = 3;
  job.pending_release = {NodeName{"n1"}, NodeName{"n2"}};
  job.scrub_trouble = "not mounted";
  job.stop_by_unix_ms = 4;
  job.suspended_unix_ms = 5;
  job.suspended_ms = 6;
  job.progress_unix_ms = 8;
  job.checkpoint_seconds = 7.5;
  job.queue = "team-a";
  job.priority_class = "high";
  job.held = true;
  job.hold_reason = "no data yet";
  job.begin_unix_ms = 9;
  job.time_limit_seconds = 10;
  job.usage = {{1, 2, 3, 4, 5, 6, 7}, 8, {TimeState::kStep, true, 4}};
  return job;
}

AttemptRecord FullAttempt() {
  AttemptRecord attempt;
  attempt.job = JobId{"0123456789"};
  attempt.generation = 3;
  attempt.state = AttemptState::kAborting;
  attempt.started_unix_ms = 5;
  attempt.nodes = {NodeName{"n1"}};
  attempt.spares = {NodeName{"n2"}};
  attempt.lent = {NodeName{"n1"}};
  attempt.node_devices = {{"GPU-1", "GPU-2"}};
  attempt.spare_devices = {{"GPU-3", "GPU-4"}};
  attempt.tier = Tier::kShrink;
  attempt.ranks = {
      {0, 0, 0, NodeName{"n1"}, 77, RankState::kExited, {{0, 9}, true, true, true, true}},
      {1, 1, 0, NodeName{"n1"}, 78, RankState::kUnkillable, {}}};
  attempt.master_address = "127.0.0.1";
  attempt.master_port = 29500;
  attempt.rendezvous_token = "aabb";
  attempt.cause_kind = CauseKind::kRankKilled;
  attempt.retryable = false;
  attempt.cause = "rank 0 was killed by SIGKILL";
  attempt.failed_rank = 0;
  attempt.failed_node = NodeName{"n1"};
  attempt.card = {"SIGKILL",  15,  "backward", 2, "world: 812 enqueued, 811 completed",
                  {"a fact"}, "do"};
  attempt.resumed_step = 12;
  attempt.resumed_from = "snapshot";
  attempt.last_step = 15;
  attempt.lost_steps = 3;
  attempt.seconds = {0.1, 0.2, 0.3, 0.4, 0.5};
  attempt.notes = {"a note"};
  attempt.log_tail = {"last", "words"};
  return attempt;
}

TEST(RecordCodec, KeepsEveryFieldOfAJob) {
  const auto decoded = Decode<JobRecord>(Encode(FullJob()));
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(*decoded, FullJob());
}

TEST(RecordCodec, KeepsEveryFieldOfAnAttempt) {
  const auto decoded = Decode<AttemptRecord>(Encode(FullAttempt()));
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(*decoded, FullAttempt());
}

TEST(RecordCodec, KeepsCheckpointsNodesAndEvents) {
  const CheckpointRecord checkpoint{.job = JobId{"j"},
                                    .step = 50,
                                    .generation = 2,
                                    .directory = "step-50",
                                    .world_size = 2,
                                    .shards = {{0, "f", 9, "xxh3:1"}},
                                    .committed_unix_ms = 8,
                                    .state = CheckpointState::kPruning,
                                    .manifest_written = true,
                                    .refused = "refused",
                                    .verified_unix_ms = 9,
                                    .evaluated = true,
                                    .eval_loss = 2.5};
  const NodeRecord node{.name = NodeName{"n"},
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
                                      .topology = {"b", "r", "s"}},
                        .broken_devices = {{.id = "GPU-1", .reason = "Xid 79"}},
                        .leaked = {{JobId{"j"}, 55, {"GPU-1"}}},
                        .pid = 66,
                        .version = "0.1",
                        .metrics_port = 9100,
                        .instance = "inst",
                        .directory_id = "directory",
                        .container_id = "container",
                        .last_seen_unix_ms = 12,
                        .failure_domain = "rack 1",
                        .allows_faults = true,
                        .drain_reason = "for repair",
                        .drain_cause = DrainCause::kPilot,
                        .drain_by_unix_ms = 13,
                        .notices = {{.kind = "memory", .detail = "98 % used"}},
                        .pilot = "p-1",
                        .report = {},
                        .unused = {{0, 0, 0, 0, 0, 0, 14}, 15, {TimeState::kIdle, false, 16}}};
  const EventRecord event{.seq = 7,
                          .unix_ms = 8,
                          .job = JobId{"j"},
                          .generation = 2,
                          .kind = "launched",
                          .severity = Severity::kWarning,
                          .message = "text"};
  EXPECT_EQ(*Decode<CheckpointRecord>(Encode(checkpoint)), checkpoint);
  EXPECT_EQ(*Decode<NodeRecord>(Encode(node)), node);
  EXPECT_EQ(*Decode<EventRecord>(Encode(event)), event);
}

TEST(RecordCodec, WritesStatesAsNames) {
  EXPECT_THAT(Encode(FullJob()), HasSubstr("\"state\":\"recovering\""));
  EXPECT_THAT(Encode(FullAttempt()), HasSubstr("\"cause_kind\":\"rank_killed\""));
  EXPECT_THAT(Encode(FullJob()), HasSubstr("\"recompute\":2"));
}

TEST(RecordCodec, WritesNoFieldThatIsAtItsDefault) {
  JobRecord job;
  job.id = JobId{"0123456789"};
  job.queue = "a";
  EXPECT_EQ(Encode(job), R"({"id":"0123456789","queue":"a","time_limit_seconds":0})")
      << "a missing time limit is that of the job file";
  AttemptRecord attempt;
  attempt.ranks = {{.rank = 1, .end = {.exit = {.signal = 9}}}};
  EXPECT_EQ(Encode(attempt), R"({"ranks":[{"rank":1,"exit":{"signal":9}}]})");
}

TEST(RecordCodec, EscapesText) {
  const std::string text = "\"\\/\n\r\t\x01\x7f caf\u00e9 \U0001F600";
  EXPECT_EQ(EncodeField("a", text),
            "\"a\":\"\\\"\\\\/\\n\\u000d\\u0009\\u0001\x7f caf\u00e9 \U0001F600\"");
  EventRecord event{.message = text};
  EXPECT_EQ(Decode<EventRecord>(Encode(event))->message, text);
}

TEST(RecordCodec, KeepsNumbersToTheLastBit) {
  for (const double value : {0.1, 1e-320, 1.7976931348623157e308, -3.0, 1e22}) {
    JobRecord job;
    job.loss = value;
    EXPECT_EQ(Decode<JobRecord>(Encode(job))->loss, value);
  }
  JobRecord job;
  job.submit_order = std::numeric_limits<std::uint64_t>::max();
  job.tokens = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(*Decode<JobRecord>(Encode(job)), job);
}

TEST(RecordCodec, LetsMissingAndUnknownFieldsPass) {
  const auto job = Decode<JobRecord>(R"({"id":"0123456789","from_the_future":[1]})");
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_EQ(job->id.value, "0123456789");
  EXPECT_EQ(job->priority, JobRecord{}.priority);
  EXPECT_EQ(job->queue, "");
  EXPECT_FALSE(job->held);
  EXPECT_EQ(job->begin_unix_ms, 0);
  // It stood in the job file alone; a job without one says so.
  EXPECT_EQ(job->time_limit_seconds, kTimeLimitOfJobFile);
  EXPECT_EQ(Decode<JobRecord>(Encode(JobRecord{}))->time_limit_seconds, 0);
  // As versions before recovery in seconds wrote them.
  const auto attempt =
      Decode<AttemptRecord>(R"({"job":"0123456789","generation":2,"nodes":["n1"]})");
  ASSERT_TRUE(attempt.ok()) << attempt.status().ToString();
  EXPECT_EQ(attempt->tier, Tier::kLaunch);
  EXPECT_TRUE(attempt->spares.empty());
  // And before checkpoints were read again.
  const auto checkpoint = Decode<CheckpointRecord>(
      R"({"job":"0123456789","step":50,"generation":2,"directory":"step-00000050-g2",)"
      R"("world_size":1,"shards":[],"committed_unix_ms":8,"state":"committed",)"
      R"("manifest_written":true,"refused":""})");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  EXPECT_EQ(checkpoint->verified_unix_ms, 0);
  EXPECT_FALSE(checkpoint->evaluated);
  const auto node = Decode<NodeRecord>(R"({"name":"n1","state":"ready"})");
  ASSERT_TRUE(node.ok()) << node.status().ToString();
  EXPECT_TRUE(node->drain_reason.empty());
  EXPECT_EQ(node->drain_cause, DrainCause::kNone);
  // And before time was booked.
  EXPECT_EQ(job->usage, GoodputUsage{});
  EXPECT_EQ(node->unused, GoodputUsage{});
}

// A coordinator did not start on a store in which a node had a notice.
TEST(RecordCodec, ReadsNoticesThatWereStoredAsTexts) {
  const auto node = Decode<NodeRecord>(R"({"name":"n1","notices":["memory: 98 % used: now"]})");
  ASSERT_TRUE(node.ok()) << node.status().ToString();
  ASSERT_EQ(node->notices.size(), 1u);
  EXPECT_EQ(node->notices[0].kind, "memory");
  EXPECT_EQ(node->notices[0].detail, "98 % used: now");
}

TEST(RecordCodec, RefusesWrongTypesAndUnknownNames) {
  EXPECT_EQ(Decode<JobRecord>("not json").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(Decode<JobRecord>("[]").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(Decode<JobRecord>(R"({"priority":"high"})").status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(Decode<JobRecord>(R"({"state":"dreaming"})").status().message(),
              HasSubstr("dreaming"));
}

TEST(RecordCodec, SurvivesNumbersAndTextThatJsonCannotHold) {
  JobRecord job = FullJob();
  job.loss = std::numeric_limits<double>::quiet_NaN();
  const auto decoded = Decode<JobRecord>(Encode(job));
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->loss, 0);

  AttemptRecord attempt = FullAttempt();
  attempt.log_tail = {"half a character: \xc3"};
  const auto tail = Decode<AttemptRecord>(Encode(attempt));
  ASSERT_TRUE(tail.ok()) << tail.status().ToString();
  EXPECT_THAT(tail->log_tail[0], HasSubstr("half a character"));
}

}  // namespace
}  // namespace muster
