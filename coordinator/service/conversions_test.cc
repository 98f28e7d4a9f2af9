#include "coordinator/service/conversions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "common/base/version.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Hello GoodHello() {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_node("n1");
  hello.set_slots(2);
  hello.set_instance("abc");
  v1::HostedGeneration& hosted = *hello.add_hosted();
  hosted.set_job_id("0123456789");
  hosted.set_generation(3);
  hosted.set_launched(true);
  hosted.add_started()->set_pid(77);
  hosted.add_exited()->mutable_exit()->set_signal(9);
  hosted.add_reports()->mutable_resumed()->set_step(40);
  return hello;
}

TEST(WorkerConversions, HelloCarriesAllThatTheNodeHosts) {
  const auto hello = FromProto(GoodHello());
  ASSERT_TRUE(hello.ok()) << hello.status().ToString();
  EXPECT_EQ(hello->node.value, "n1");
  ASSERT_EQ(hello->hosted.size(), 1u);
  const HostedGeneration& hosted = hello->hosted[0];
  EXPECT_EQ(hosted.generation, 3);
  EXPECT_TRUE(hosted.launched);
  EXPECT_EQ(hosted.started.at(0).pid, 77);
  EXPECT_EQ(hosted.exited.at(0).exit.signal, 9);
  EXPECT_EQ(std::get<Resumed>(hosted.reports.at(0).body).step, 40);
}

TEST(WorkerConversions, PreparedCarriesTheCudaStackWhereThereIsOne) {
  v1::WorkerMessage message;
  message.mutable_prepared()->set_job_id("0123456789");
  message.mutable_prepared()->set_ok(true);
  EXPECT_FALSE(std::get<Prepared>(*FromProto(message)).cuda.has_value());
  v1::CudaStack& cuda = *message.mutable_prepared()->mutable_cuda();
  cuda.set_plugin("0.1.0-ab");
  cuda.set_runtime("13.0");
  cuda.set_driver("13.1");
  cuda.set_nccl("2.28.9");
  EXPECT_EQ(std::get<Prepared>(*FromProto(message)).cuda,
            (CudaStack{"0.1.0-ab", "13.0", "13.1", "2.28.9"}));
}

TEST(WorkerConversions, GpusAreKnownOnlyWhereTheWorkerSaysHowMany) {
  v1::Hello hello = GoodHello();
  EXPECT_EQ(FromProto(hello)->gpus, std::nullopt);
  hello.set_gpus(0);
  EXPECT_EQ(FromProto(hello)->gpus, 0);
}

TEST(WorkerConversions, BadNamesAndCountsAreRefused) {
  for (const char* name : {"", "a/b", "..", "a b", "node\n"}) {
    v1::Hello hello = GoodHello();
    hello.set_node(name);
    EXPECT_EQ(FromProto(hello).status().code(), StatusCode::kInvalidArgument) << name;
  }
  v1::Hello hello = GoodHello();
  hello.set_slots(-1);
  EXPECT_EQ(FromProto(hello).status().code(), StatusCode::kInvalidArgument);
  hello = GoodHello();
  hello.mutable_hosted(0)->mutable_exited(0)->set_rank(-1);
  EXPECT_EQ(FromProto(hello).status().code(), StatusCode::kInvalidArgument);
}

TEST(WorkerConversions, AnotherVersionsHelloIsNotReadFurther) {
  v1::Hello hello = GoodHello();
  hello.set_protocol_version(kProtocolVersion + 1);
  hello.mutable_hosted(0)->mutable_exited(0)->set_rank(-1);
  const auto converted = FromProto(hello);
  ASSERT_TRUE(converted.ok()) << converted.status().ToString();
  EXPECT_EQ(converted->protocol_version, kProtocolVersion + 1);
  EXPECT_TRUE(converted->hosted.empty());
}

TEST(WorkerConversions, EveryTrainerReportKeepsItsBody) {
  v1::WorkerMessage message;
  v1::TrainerReport& report = *message.mutable_trainer_report();
  report.set_generation(2);
  report.set_rank(1);
  v1::ShardWritten& shard = *report.mutable_shard_written();
  shard.set_step(50);
  shard.set_directory("step-50");
  shard.mutable_shard()->set_file("rank-1.bin");
  shard.mutable_shard()->set_bytes(9);
  auto converted = FromProto(message);
  ASSERT_TRUE(converted.ok());
  const auto& written = std::get<ShardWritten>(std::get<TrainerReport>(*converted).body);
  EXPECT_EQ(written.directory, "step-50");
  EXPECT_EQ(written.shard.file, "rank-1.bin");
  EXPECT_FALSE(written.eval_loss.has_value());
  shard.set_eval_loss(0);
  converted = FromProto(message);
  EXPECT_EQ(std::get<ShardWritten>(std::get<TrainerReport>(*converted).body).eval_loss, 0.0);

  report.mutable_error()->set_kind("peer_lost");
  converted = FromProto(message);
  EXPECT_EQ(std::get<TrainerError>(std::get<TrainerReport>(*converted).body).kind, "peer_lost");
}

TEST(WorkerConversions, MessagesWithoutAKnownBodyAreRefused) {
  EXPECT_EQ(FromProto(v1::WorkerMessage()).status().code(), StatusCode::kInvalidArgument);
  v1::WorkerMessage message;
  message.mutable_trainer_report();
  EXPECT_EQ(FromProto(message).status().code(), StatusCode::kInvalidArgument);
  message.mutable_hello();
  EXPECT_THAT(FromProto(message).status().message(), HasSubstr("second Hello"));
}

TEST(WorkerConversions, ProgressCarriesThePictureOfARank) {
  v1::WorkerMessage message;
  v1::RankProgress& rank = *message.mutable_progress()->add_ranks();
  rank.set_rank(1);
  rank.set_step(41);
  rank.set_micro_batch(3);
  rank.set_stores(99);
  rank.set_busy_seconds(1.5);
  rank.set_wait_seconds(0.5);
  rank.set_steps_done(7);
  rank.set_process_state("T");
  rank.set_cpu_seconds(2.5);
  rank.add_phase_seconds(0.25);
  rank.set_snapshot_step(40);
  rank.set_device_bytes(60);
  rank.set_device_capacity_bytes(80);
  v1::CollectiveCounts& world = *rank.add_collectives();
  world.set_group("world");
  world.set_enqueued(9);
  world.set_started(8);
  world.set_completed(7);
  world.set_bytes(6);
  const auto converted = FromProto(message);
  ASSERT_TRUE(converted.ok());
  const RankProgress& progress = std::get<Progress>(*converted).ranks.at(0);
  EXPECT_EQ(progress.micro_batch, 3);
  EXPECT_EQ(progress.stores, 99u);
  EXPECT_EQ(progress.busy_seconds, 1.5);
  EXPECT_EQ(progress.wait_seconds, 0.5);
  EXPECT_EQ(progress.steps_done, 7);
  EXPECT_EQ(progress.process_state, "T");
  EXPECT_EQ(progress.cpu_seconds, 2.5);
  EXPECT_THAT(progress.phase_seconds, ElementsAre(0.25));
  EXPECT_EQ(progress.snapshot_step, 40);
  EXPECT_EQ(progress.device_bytes, 60u);
  EXPECT_EQ(progress.device_capacity_bytes, 80u);
  EXPECT_EQ(progress.collectives.at(0), (CollectiveCounts{"world", 9, 8, 7, 6, 0}));
}

TEST(WorkerConversions, AnExitCarriesThePageAndTheFactsOfItsEnd) {
  v1::WorkerMessage message;
  v1::RankExited& exited = *message.mutable_rank_exited();
  exited.set_out_of_memory(true);
  exited.set_asked_to_stop(true);
  exited.add_facts("oom_kill 1 in its cgroup");
  EXPECT_FALSE(std::get<RankExited>(*FromProto(message)).last.has_value());
  exited.mutable_last()->set_step(41);
  const auto converted = std::get<RankExited>(*FromProto(message));
  EXPECT_TRUE(converted.out_of_memory);
  EXPECT_TRUE(converted.asked_to_stop);
  EXPECT_THAT(converted.facts, ElementsAre("oom_kill 1 in its cgroup"));
  ASSERT_TRUE(converted.last.has_value());
  EXPECT_EQ(converted.last->step, 41);
}

TEST(WorkerConversions, WhoIsParkedIsToldOnBothWays) {
  v1::WorkerMessage message;
  message.mutable_quiesced()->add_parked_ranks(2);
  message.mutable_quiesced()->set_standbys(3);
  EXPECT_THAT(std::get<Quiesced>(*FromProto(message)).parked_ranks, ElementsAre(2));
  EXPECT_EQ(std::get<Quiesced>(*FromProto(message)).standbys, 3);
  v1::Hello hello = GoodHello();
  hello.mutable_hosted(0)->add_parked_ranks(1);
  hello.mutable_hosted(0)->set_standbys(4);
  hello.set_failure_domain("rack-7");
  hello.set_allows_faults(true);
  for (int i = 0; i < 40; ++i) hello.add_report(std::string(1000, 'x'));
  const auto converted = FromProto(hello);
  EXPECT_THAT(converted->hosted.at(0).parked_ranks, ElementsAre(1));
  EXPECT_EQ(converted->hosted.at(0).standbys, 4);
  EXPECT_EQ(converted->failure_domain, "rack-7");
  EXPECT_TRUE(converted->allows_faults);
  ASSERT_EQ(converted->report.size(), 32u);
  EXPECT_EQ(converted->report[31].size(), 400u);

  const v1::CoordinatorMessage abort = ToProto(CoordinatorMessage(
      Abort{.job_id = JobId{"0123456789"}, .generation = 3, .park_seconds = 1, .kill_ranks = {4}}));
  EXPECT_EQ(abort.abort().park_seconds(), 1);
  EXPECT_THAT(abort.abort().kill_ranks(), ElementsAre(4));
  const v1::CoordinatorMessage prepare =
      ToProto(CoordinatorMessage(Prepare{.spare = true, .standbys = 2}));
  EXPECT_TRUE(prepare.prepare().spare());
  EXPECT_EQ(prepare.prepare().standbys(), 2);
}

TEST(WorkerConversions, WitnessesNoticesAndFaultsAreRead) {
  v1::WorkerMessage message;
  message.mutable_probe_result()->set_probe_id(7);
  message.mutable_probe_result()->set_node("n2");
  EXPECT_EQ(FromProto(message).status().code(), StatusCode::kInvalidArgument) << "no outcome";
  message.mutable_probe_result()->set_outcome(v1::PROBE_OUTCOME_REFUSED);
  const auto probe = std::get<ProbeResult>(*FromProto(message));
  EXPECT_EQ(probe.probe_id, 7u);
  EXPECT_EQ(probe.node.value, "n2");
  EXPECT_EQ(probe.outcome, ProbeOutcome::kRefused);
  message.mutable_probe_result()->set_outcome(v1::PROBE_OUTCOME_SILENT);
  EXPECT_EQ(std::get<ProbeResult>(*FromProto(message)).outcome, ProbeOutcome::kSilent);

  v1::NodeNotice& notice = *message.mutable_node_notice();
  notice.set_detail("GPU 3 fell off the bus");
  EXPECT_EQ(FromProto(message).status().code(), StatusCode::kInvalidArgument) << "no kind";
  notice.set_kind(v1::NODE_NOTICE_KIND_XID);
  notice.set_deadline_seconds(30);
  notice.add_devices("3");
  notice.set_fatal(true);
  notice.add_standing("short of memory");
  const auto told = std::get<NodeNotice>(*FromProto(message));
  EXPECT_EQ(told.kind, NodeNoticeKind::kXid);
  EXPECT_EQ(told.detail, "GPU 3 fell off the bus");
  EXPECT_EQ(told.deadline_seconds, 30);
  EXPECT_THAT(told.devices, ElementsAre("3"));
  EXPECT_TRUE(told.fatal);
  EXPECT_THAT(told.standing, ElementsAre("short of memory"));

  message.mutable_fault_done()->set_request_id(9);
  message.mutable_fault_done()->set_error("no such rank");
  const auto done = std::get<FaultDone>(*FromProto(message));
  EXPECT_EQ(done.request_id, 9u);
  EXPECT_EQ(done.error, "no such rank");
}

TEST(WorkerConversions, StopsProbesAndFaultsAreSent) {
  const v1::CoordinatorMessage stop =
      ToProto(CoordinatorMessage(Stop{JobId{"0123456789"}, 3, "drained"}));
  EXPECT_EQ(stop.stop().job_id(), "0123456789");
  EXPECT_EQ(stop.stop().generation(), 3);
  EXPECT_EQ(stop.stop().reason(), "drained");
  const v1::CoordinatorMessage probe =
      ToProto(CoordinatorMessage(Probe{7, NodeName{"n2"}, "10.0.0.2", 9000, 500}));
  EXPECT_EQ(probe.probe().probe_id(), 7u);
  EXPECT_EQ(probe.probe().node(), "n2");
  EXPECT_EQ(probe.probe().address(), "10.0.0.2");
  EXPECT_EQ(probe.probe().port(), 9000);
  EXPECT_EQ(probe.probe().timeout_ms(), 500);
  const v1::CoordinatorMessage fault =
      ToProto(CoordinatorMessage(InjectFault{9, JobId{"0123456789"}, 3, 1, "slow", "0.3"}));
  EXPECT_EQ(fault.inject_fault().request_id(), 9u);
  EXPECT_EQ(fault.inject_fault().job_id(), "0123456789");
  EXPECT_EQ(fault.inject_fault().generation(), 3);
  EXPECT_EQ(fault.inject_fault().rank(), 1);
  EXPECT_EQ(fault.inject_fault().kind(), "slow");
  EXPECT_EQ(fault.inject_fault().argument(), "0.3");
}

TEST(WorkerConversions, ScrubsAreSentAndTheirResultsRead) {
  ScrubCheckpoint scrub{5, JobId{"0123456789"}, "/out", {}, 1000};
  scrub.checkpoint.directory = "step-00000010-g1";
  scrub.checkpoint.shards = {{0, "rank-00000.shard", 4096, "xxh3-tree:1"}};
  const v1::CoordinatorMessage sent = ToProto(CoordinatorMessage(scrub));
  EXPECT_EQ(sent.scrub_checkpoint().scrub_id(), 5u);
  EXPECT_EQ(sent.scrub_checkpoint().job_id(), "0123456789");
  EXPECT_EQ(sent.scrub_checkpoint().output_dir(), "/out");
  EXPECT_EQ(sent.scrub_checkpoint().checkpoint().shards(0).checksum(), "xxh3-tree:1");
  EXPECT_EQ(sent.scrub_checkpoint().max_bytes_per_second(), 1000u);
  EXPECT_EQ(ToProto(CoordinatorMessage(CancelScrub{6})).cancel_scrub().scrub_id(), 6u);

  v1::WorkerMessage message;
  v1::CheckpointScrubbed& scrubbed = *message.mutable_checkpoint_scrubbed();
  EXPECT_FALSE(FromProto(message).ok()) << "no outcome";
  scrubbed.set_scrub_id(5);
  scrubbed.set_job_id("0123456789");
  scrubbed.set_directory("step-00000010-g1");
  scrubbed.set_outcome(v1::SCRUB_OUTCOME_MISSING);
  scrubbed.set_file("rank-00000.shard");
  scrubbed.set_detail("no such file");
  const auto read = FromProto(message);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  const auto& result = std::get<CheckpointScrubbed>(*read);
  EXPECT_EQ(result.scrub_id, 5u);
  EXPECT_EQ(result.job_id.value, "0123456789");
  EXPECT_EQ(result.directory, "step-00000010-g1");
  EXPECT_EQ(result.outcome, ScrubOutcome::kMissing);
  EXPECT_EQ(result.file, "rank-00000.shard");
  EXPECT_EQ(result.detail, "no such file");
}

TEST(ClientConversions, ACheckpointTellsWhenItWasVerifiedAndWhatIsWrongWithIt) {
  CheckpointRecord checkpoint;
  checkpoint.committed_unix_ms = 70;
  EXPECT_EQ(ToProto(checkpoint).verified_unix_ms(), 0);
  checkpoint.manifest_written = true;  // as versions before scrubs have stored it
  EXPECT_EQ(ToProto(checkpoint).verified_unix_ms(), 70);
  checkpoint.verified_unix_ms = 90;
  checkpoint.refused = "bits";
  EXPECT_EQ(ToProto(checkpoint).verified_unix_ms(), 90);
  EXPECT_EQ(ToProto(checkpoint).refused(), "bits");
  EXPECT_FALSE(ToProto(checkpoint).has_eval_loss());
  checkpoint.evaluated = true;
  checkpoint.eval_loss = 2.5;
  EXPECT_EQ(ToProto(checkpoint).eval_loss(), 2.5);
}

TEST(WorkerConversions, LaunchCarriesItsResumePoints) {
  Launch launch;
  launch.job_id = JobId{"0123456789"};
  launch.generation = 4;
  launch.master_port = 29500;
  launch.buddy_ring = {0, 2, 1};
  launch.rendezvous_token = "aabb";
  launch.resume.resize(2);
  launch.resume[0].step = 60;
  launch.resume[0].shards.push_back({1, "f", 5, "xxh3:0"});
  const v1::CoordinatorMessage message = ToProto(CoordinatorMessage(launch));
  ASSERT_TRUE(message.has_launch());
  EXPECT_EQ(message.launch().generation(), 4);
  EXPECT_THAT(message.launch().buddy_ring(), ::testing::ElementsAre(0, 2, 1));
  EXPECT_EQ(message.launch().rendezvous_token(), "aabb");
  ASSERT_EQ(message.launch().resume_size(), 2);
  EXPECT_EQ(message.launch().resume(0).step(), 60);
  EXPECT_EQ(message.launch().resume(0).shards(0).checksum(), "xxh3:0");
}

// What a view of a job points into.
struct ViewedJob {
  JobView View() const {
    JobView view;
    view.record = &record;
    view.attempts = &attempts;
    view.checkpoints = &checkpoints;
    view.progress = &progress;
    return view;
  }
  JobRecord record;
  std::vector<AttemptRecord> attempts;
  std::vector<CheckpointRecord> checkpoints;
  std::vector<RankProgress> progress;
};

TEST(ClientConversions, ASummaryLeavesTheDetailOut) {
  ViewedJob job;
  JobRecord& record = job.record;
  record.id = JobId{"0123456789"};
  record.state = JobState::kRunning;
  record.spec_yaml = "name: a";
  AttemptRecord attempt;
  attempt.generation = 1;
  attempt.ranks.push_back({0, 0, 0, NodeName{"n1"}, 55, RankState::kExited, {0, 9}});
  job.attempts = {attempt};
  job.checkpoints.resize(2);
  job.checkpoints[0].state = CheckpointState::kPruning;
  job.checkpoints[1].state = CheckpointState::kCommitted;
  job.progress.resize(1);
  job.progress[0].device_bytes = 60;
  job.progress[0].device_capacity_bytes = 80;
  JobView view = job.View();
  view.step = 9;

  const v1::Job summary = ToProto(view, JobDetail::kSummary, TimePoint());
  EXPECT_EQ(summary.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(summary.step(), 9);
  EXPECT_EQ(summary.ranks_size() + summary.attempts_size() + summary.checkpoints_size(), 0);
  EXPECT_TRUE(summary.spec_yaml().empty());

  const v1::Job full = ToProto(view, JobDetail::kFull, TimePoint());
  ASSERT_EQ(full.ranks_size(), 1);
  EXPECT_EQ(full.ranks(0).exit().signal(), 9);
  EXPECT_EQ(full.attempts_size(), 1);
  EXPECT_EQ(full.checkpoints_size(), 1) << "one that is being pruned is no longer there";
  EXPECT_EQ(full.spec_yaml(), "name: a");
  ASSERT_EQ(full.progress_size(), 1);
  EXPECT_EQ(full.progress(0).device_bytes(), 60u);
  EXPECT_EQ(full.progress(0).device_capacity_bytes(), 80u);
}

TEST(ClientConversions, AJobsBooksAreThoseOfTheMoment) {
  ViewedJob job;
  TimeLedger ledger;
  const TimePoint begin{std::chrono::hours(1)};
  ledger.Begin({.doing = {TimeState::kQueue, false, 4}}, 0, begin, 1);
  JobView view = job.View();
  view.ledger = &ledger;
  const v1::Goodput goodput =
      ToProto(view, JobDetail::kSummary, begin + std::chrono::seconds(10)).goodput();
  ASSERT_EQ(goodput.states_size(), kTimeStateCount);
  EXPECT_EQ(goodput.states(0).state(), "step");
  EXPECT_EQ(goodput.states(5).state(), "queue");
  EXPECT_DOUBLE_EQ(goodput.states(5).seconds(), 40);
  EXPECT_LT(goodput.ratio(), 0) << "it has had no slots";
  ledger.Transition({TimeState::kStep, true, 4}, 1, begin + std::chrono::seconds(10));
  EXPECT_DOUBLE_EQ(ToProto(view.goodput(begin + std::chrono::seconds(11))).under_way_seconds(), 4);
}

AttemptRecord EndedAttempt() {
  AttemptRecord attempt;
  attempt.generation = 2;
  attempt.tier = Tier::kInPlace;
  attempt.nodes = {NodeName{"n1"}, NodeName{"n2"}};
  attempt.spares = {NodeName{"n3"}};
  attempt.ranks.resize(2);
  attempt.resumed_from = "snapshot";
  attempt.cause_kind = CauseKind::kHung;
  attempt.card = {"no progress for 3.1 s", 41,         "data", 3, "world: 9 enqueued, 8 completed",
                  {"limit 3.0 s"},         "look here"};
  return attempt;
}

TEST(ClientConversions, AnAttemptTellsHowItCameUpAndWhyItEnded) {
  ViewedJob job;
  job.record.world_size = 4;
  job.attempts = {EndedAttempt()};
  EXPECT_EQ(ToProto(job.View(), JobDetail::kSummary, TimePoint()).world_size(), 2)
      << "of the newest attempt";
  const v1::AttemptInfo attempt = ToProto(job.View(), JobDetail::kFull, TimePoint()).attempts(0);
  EXPECT_EQ(attempt.tier(), "in_place");
  EXPECT_EQ(attempt.world_size(), 2);
  EXPECT_THAT(attempt.nodes(), ElementsAre("n1", "n2"));
  EXPECT_THAT(attempt.spares(), ElementsAre("n3"));
  EXPECT_EQ(attempt.resumed_from(), "snapshot");
  EXPECT_EQ(attempt.cause_kind(), "hung");
  EXPECT_EQ(attempt.card().what(), "no progress for 3.1 s");
  EXPECT_EQ(attempt.card().step(), 41);
  EXPECT_EQ(attempt.card().phase(), "data");
  EXPECT_EQ(attempt.card().micro_batch(), 3);
  EXPECT_EQ(attempt.card().last_collective(), "world: 9 enqueued, 8 completed");
  EXPECT_THAT(attempt.card().facts(), ElementsAre("limit 3.0 s"));
  EXPECT_EQ(attempt.card().advice(), "look here");
}

TEST(ClientConversions, AnAttemptThatRunsHasNoCause) {
  ViewedJob job;
  job.attempts.resize(1);
  const v1::AttemptInfo attempt = ToProto(job.View(), JobDetail::kFull, TimePoint()).attempts(0);
  EXPECT_EQ(attempt.cause_kind(), "");
  EXPECT_FALSE(attempt.has_card());
  EXPECT_EQ(attempt.tier(), "launch");
}

TEST(ClientConversions, ANodeTellsThatItDrainsAndWhatItSaysOfItself) {
  NodeRecord record;
  record.name = NodeName{"n1"};
  record.state = NodeState::kDraining;
  record.reason = "";
  record.host_id = "host-a";
  record.drain_reason = "new kernel";
  record.drain_by_unix_ms = 5000;
  record.notices = {"memory pressure"};
  record.pilot = "p-1";
  record.report = {"between nodes: sockets"};
  NodeView view{&record, 1, true};
  v1::Node node = ToProto(view);
  EXPECT_EQ(node.reason(), "new kernel");
  EXPECT_EQ(node.drain_by_unix_ms(), 5000);
  EXPECT_EQ(node.failure_domain(), "host-a") << "where none was given";
  EXPECT_THAT(node.notices(), ElementsAre("memory pressure"));
  EXPECT_EQ(node.pilot(), "p-1");
  EXPECT_THAT(node.report(), ElementsAre("between nodes: sockets"));
  record.failure_domain = "rack-7";
  record.state = NodeState::kLost;
  record.reason = "not seen";
  node = ToProto(view);
  EXPECT_EQ(node.failure_domain(), "rack-7");
  EXPECT_EQ(node.reason(), "not seen") << "the newer news";
}

TEST(ClientConversions, AJobOfManyAttemptsFitsIntoOneMessage) {
  ViewedJob job;
  job.attempts.resize(2000);
  for (AttemptRecord& attempt : job.attempts) attempt.log_tail.assign(20, std::string(1000, 'x'));
  job.attempts.back().notes = {"the newest"};
  const v1::Job full = ToProto(job.View(), JobDetail::kFull, TimePoint());
  EXPECT_EQ(full.attempts_size(), 2000);
  EXPECT_LT(full.ByteSizeLong(), 6u << 20);
  EXPECT_EQ(full.attempts(0).log_tail_size(), 0);
  EXPECT_EQ(full.attempts(1999).log_tail_size(), 20);
  EXPECT_EQ(full.attempts(1999).notes(0), "the newest");
}

}  // namespace
}  // namespace muster
