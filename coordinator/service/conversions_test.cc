#include "coordinator/service/conversions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "common/base/version.h"

namespace muster {
namespace {

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

TEST(WorkerConversions, LaunchCarriesItsResumePoints) {
  Launch launch;
  launch.job_id = JobId{"0123456789"};
  launch.generation = 4;
  launch.master_port = 29500;
  launch.resume.resize(2);
  launch.resume[0].step = 60;
  launch.resume[0].shards.push_back({1, "f", 5, "xxh3:0"});
  const v1::CoordinatorMessage message = ToProto(CoordinatorMessage(launch));
  ASSERT_TRUE(message.has_launch());
  EXPECT_EQ(message.launch().generation(), 4);
  ASSERT_EQ(message.launch().resume_size(), 2);
  EXPECT_EQ(message.launch().resume(0).step(), 60);
  EXPECT_EQ(message.launch().resume(0).shards(0).checksum(), "xxh3:0");
}

TEST(ClientConversions, ASummaryLeavesTheDetailOut) {
  JobRecord record;
  record.id = JobId{"0123456789"};
  record.state = JobState::kRunning;
  record.spec_yaml = "name: a";
  AttemptRecord attempt;
  attempt.generation = 1;
  attempt.ranks.push_back({0, 0, 0, NodeName{"n1"}, 55, RankState::kExited, {0, 9}});
  const std::vector<AttemptRecord> attempts = {attempt};
  std::vector<CheckpointRecord> checkpoints(2);
  checkpoints[0].state = CheckpointState::kPruning;
  checkpoints[1].state = CheckpointState::kCommitted;
  const std::vector<RankProgress> progress(1);
  JobView view;
  view.record = &record;
  view.attempts = &attempts;
  view.checkpoints = &checkpoints;
  view.progress = &progress;
  view.step = 9;

  const v1::Job summary = ToProto(view, JobDetail::kSummary);
  EXPECT_EQ(summary.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(summary.step(), 9);
  EXPECT_EQ(summary.ranks_size() + summary.attempts_size() + summary.checkpoints_size(), 0);
  EXPECT_TRUE(summary.spec_yaml().empty());

  const v1::Job full = ToProto(view, JobDetail::kFull);
  ASSERT_EQ(full.ranks_size(), 1);
  EXPECT_EQ(full.ranks(0).exit().signal(), 9);
  EXPECT_EQ(full.attempts_size(), 1);
  EXPECT_EQ(full.checkpoints_size(), 1) << "one that is being pruned is no longer there";
  EXPECT_EQ(full.spec_yaml(), "name: a");
}

TEST(ClientConversions, AJobOfManyAttemptsFitsIntoOneMessage) {
  JobRecord record;
  std::vector<AttemptRecord> attempts(2000);
  for (AttemptRecord& attempt : attempts) attempt.log_tail.assign(20, std::string(1000, 'x'));
  attempts.back().notes = {"the newest"};
  const std::vector<CheckpointRecord> checkpoints;
  const std::vector<RankProgress> progress;
  JobView view;
  view.record = &record;
  view.attempts = &attempts;
  view.checkpoints = &checkpoints;
  view.progress = &progress;
  const v1::Job full = ToProto(view, JobDetail::kFull);
  EXPECT_EQ(full.attempts_size(), 2000);
  EXPECT_LT(full.ByteSizeLong(), 6u << 20);
  EXPECT_EQ(full.attempts(0).log_tail_size(), 0);
  EXPECT_EQ(full.attempts(1999).log_tail_size(), 20);
  EXPECT_EQ(full.attempts(1999).notes(0), "the newest");
}

}  // namespace
}  // namespace muster
