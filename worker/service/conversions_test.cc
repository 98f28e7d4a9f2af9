#include "worker/service/conversions.h"

#include <gtest/gtest.h>

#include "common/base/version.h"
#include "worker/service/trainer_report.h"

namespace muster::worker {
namespace {

const JobId kJob{"00c0ffee00"};

v1::TrainerReport Report(const std::string& json) {
  const auto message = ToProto(TrainerReport{kJob, 2, 1, json});
  return message ? message->trainer_report() : v1::TrainerReport();
}

TEST(TrainerReports, EveryKindOfTheTrainersProtocolIsTranslated) {
  EXPECT_TRUE(Report(R"({"type":"formed"})").has_formed());
  const auto resumed =
      Report(R"({"type":"resumed","step":40,"rejected":[{"directory":"d","reason":"r"}]})");
  EXPECT_EQ(resumed.resumed().step(), 40);
  EXPECT_EQ(resumed.resumed().from(), "");
  EXPECT_EQ(Report(R"({"type":"resumed","step":40,"from":"snapshot"})").resumed().from(),
            "snapshot");
  EXPECT_EQ(Report(R"({"type":"parked","step":40})").parked().step(), 40);
  EXPECT_EQ(resumed.resumed().rejected(0).directory(), "d");
  EXPECT_EQ(resumed.resumed().rejected(0).reason(), "r");
  EXPECT_EQ(Report(R"({"type":"first_step","step":41})").first_step().step(), 41);
  const auto shard =
      Report(R"({"type":"shard_written","step":50,"directory":"step-00000050-g2",)"
             R"("shard":{"rank":1,"file":"f","bytes":12345678901,"checksum":"xxh3:00"}})");
  EXPECT_EQ(shard.shard_written().step(), 50);
  EXPECT_EQ(shard.shard_written().directory(), "step-00000050-g2");
  EXPECT_EQ(shard.shard_written().shard().bytes(), 12345678901u);
  EXPECT_EQ(shard.shard_written().shard().checksum(), "xxh3:00");
  EXPECT_FALSE(shard.shard_written().has_eval_loss());
  const auto evaluated =
      Report(R"({"type":"shard_written","step":50,"directory":"d","eval_loss":2.5,)"
             R"("shard":{"rank":1,"file":"f","bytes":1,"checksum":"xxh3:00"}})");
  EXPECT_EQ(evaluated.shard_written().eval_loss(), 2.5);
  EXPECT_EQ(Report(R"({"type":"checkpoint_failed","step":50,"reason":"full"})")
                .checkpoint_failed()
                .reason(),
            "full");
  EXPECT_FALSE(Report(R"({"type":"error","kind":"nonfinite","message":"m"})").error().symptom());
  EXPECT_TRUE(Report(R"({"type":"error","kind":"nonfinite","message":"m","symptom":true})")
                  .error()
                  .symptom());
  EXPECT_EQ(Report(R"({"type":"error","kind":"data","message":"m","step":12})").error().kind(),
            "data");
  EXPECT_EQ(Report(R"({"type":"note","severity":"warning","message":"m"})").note().severity(),
            "warning");
  const auto finished = Report(R"({"type":"finished","step":200,"model_dir":"/m"})");
  EXPECT_EQ(finished.finished().step(), 200);
  EXPECT_EQ(finished.job_id(), kJob.value);
  EXPECT_EQ(finished.generation(), 2);
  EXPECT_EQ(finished.rank(), 1);
}

TEST(TrainerReports, WhatIsMalformedOrUnknownIsNotSent) {
  for (const char* json : {"", "{", "[]", R"({"type":"dance"})", R"({"type":"first_step"})",
                           R"({"type":"shard_written","step":1,"directory":"d","shard":3})"})
    EXPECT_FALSE(ToProto(TrainerReport{kJob, 2, 1, json})) << json;
}

TEST(Conversions, AFailedPreparationIsNotOk) {
  const auto failed = ToProto(Prepared{kJob, 3, "no model", false, 0});
  ASSERT_TRUE(failed);
  EXPECT_FALSE(failed->prepared().ok());
  EXPECT_EQ(failed->prepared().error(), "no model");
  EXPECT_TRUE(ToProto(Prepared{kJob, 3, "", false, 4711})->prepared().ok());
}

TEST(Conversions, APreparationCarriesTheCudaStackWhereThereIsOne) {
  EXPECT_FALSE(ToProto(Prepared{kJob, 3, "", false, 4711})->prepared().has_cuda());
  const CudaStack stack{"0.1.0-ab", "13.0", "13.1", "2.28.9"};
  const auto message = ToProto(Prepared{kJob, 3, "", false, 4711, stack});
  ASSERT_TRUE(message);
  EXPECT_EQ(message->prepared().cuda().plugin(), "0.1.0-ab");
  EXPECT_EQ(message->prepared().cuda().runtime(), "13.0");
  EXPECT_EQ(message->prepared().cuda().driver(), "13.1");
  EXPECT_EQ(message->prepared().cuda().nccl(), "2.28.9");
}

TEST(Conversions, LogLinesThatAreNoTextAreRepaired) {
  const auto message = ToProto(RankExited{.job = kJob, .log_tail = {"bad \xff byte"}});
  ASSERT_TRUE(message);
  EXPECT_EQ(message->rank_exited().log_tail(0), "bad \xef\xbf\xbd byte");
  EXPECT_FALSE(message->SerializeAsString().empty());
}

TEST(Conversions, HelloCarriesTheWorkerAndEveryGuardian) {
  EXPECT_EQ(ToProto(Quiesced{kJob, 2, {}, {1, 3}})->quiesced().parked_ranks(1), 3);
  EXPECT_EQ(ToProto(Quiesced{.job = kJob, .standbys = 2})->quiesced().standbys(), 2);
  const HostedGeneration hosted{
      .job = kJob,
      .generation = 2,
      .prepared = true,
      .master_port = 4711,
      .launched = true,
      .started = {{kJob, 2, 0, 100}},
      .exited = {{kJob, 2, 1, {.signal = 9}, 1.5, {"line"}}},
      .reports = {{kJob, 2, 0, R"({"type":"formed"})"}, {kJob, 2, 0, "garbage"}},
      .parked_ranks = {1, 3},
      .standbys = 4};
  const v1::Hello hello =
      MakeHello({.node = "n1", .address = "127.0.0.1", .slots = 4, .pid = 7}, {hosted}).hello();
  EXPECT_EQ(hello.protocol_version(), kProtocolVersion);
  EXPECT_EQ(hello.node(), "n1");
  EXPECT_EQ(hello.slots(), 4);
  ASSERT_EQ(hello.hosted_size(), 1);
  EXPECT_EQ(hello.hosted(0).started(0).pid(), 100);
  EXPECT_EQ(hello.hosted(0).exited(0).exit().signal(), 9);
  EXPECT_EQ(hello.hosted(0).reports_size(), 1);
  EXPECT_EQ(hello.hosted(0).parked_ranks_size(), 2);
  EXPECT_EQ(hello.hosted(0).standbys(), 4);
  EXPECT_TRUE(hello.hosted(0).prepared());
  EXPECT_FALSE(hello.hosted(0).quiesced());
}

TEST(Conversions, AMessageOfANewerCoordinatorIsPassedOver) {
  EXPECT_FALSE(FromProto(v1::CoordinatorMessage()));
}

TEST(Conversions, AJobIdThatLeadsOutOfItsDirectoryIsPassedOver) {
  for (const char* id : {"", ".", "..", "../../home", "a/b", "00C0FFEE", "x"}) {
    v1::CoordinatorMessage message;
    message.mutable_release()->set_job_id(id);
    EXPECT_FALSE(FromProto(message)) << id;
    message.mutable_prepare()->set_job_id(id);
    EXPECT_FALSE(FromProto(message)) << id;
  }
  v1::CoordinatorMessage message;
  message.mutable_release()->set_job_id(kJob.value);
  EXPECT_TRUE(FromProto(message));
}

TEST(Conversions, LaunchKeepsEveryField) {
  v1::CoordinatorMessage message;
  v1::Launch* from = message.mutable_launch();
  from->set_job_id(kJob.value);
  from->set_generation(2);
  from->set_master_address("10.0.0.1");
  for (const int node : {0, 2, 1}) from->add_buddy_ring(node);
  from->set_master_port(4711);
  from->set_world_size(8);
  from->set_node_rank(1);
  from->set_node_count(2);
  from->set_local_world_size(4);
  from->set_restart_count(3);
  from->set_max_restarts(5);
  from->set_rendezvous_token("aabb");
  v1::CheckpointInfo* checkpoint = from->add_resume();
  checkpoint->set_step(40);
  checkpoint->set_directory("d");
  checkpoint->set_eval_loss(2.5);
  checkpoint->add_shards()->set_file("f");
  from->add_ranks()->set_rank(5);
  from->mutable_ranks(0)->set_local_rank(1);
  const auto value = FromProto(message);
  ASSERT_TRUE(value && std::holds_alternative<Launch>(*value));
  const Launch& to = std::get<Launch>(*value);
  EXPECT_EQ(to.job, kJob);
  EXPECT_EQ(to.generation, 2);
  EXPECT_EQ(to.master_address, "10.0.0.1");
  EXPECT_EQ(to.buddy_ring, (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(to.master_port, 4711);
  EXPECT_EQ(to.world_size, 8);
  EXPECT_EQ(to.node_rank, 1);
  EXPECT_EQ(to.node_count, 2);
  EXPECT_EQ(to.local_world_size, 4);
  EXPECT_EQ(to.restart_count, 3);
  EXPECT_EQ(to.max_restarts, 5);
  EXPECT_EQ(to.rendezvous_token, "aabb");
  ASSERT_EQ(to.resume.size(), 1u);
  EXPECT_EQ(to.resume[0].step, 40);
  EXPECT_EQ(to.resume[0].shards[0].file, "f");
  EXPECT_EQ(to.ranks, (std::vector<RankPlacement>{{5, 1}}));
}

TEST(Conversions, ScrubsKeepEveryField) {
  v1::CoordinatorMessage message;
  v1::ScrubCheckpoint& from = *message.mutable_scrub_checkpoint();
  from.set_scrub_id(5);
  from.set_job_id(kJob.value);
  from.set_output_dir("/out");
  from.mutable_checkpoint()->set_directory("step-00000010-g1");
  from.mutable_checkpoint()->add_shards()->set_checksum("xxh3-tree:1");
  from.set_max_bytes_per_second(1000);
  const ScrubCheckpoint to = std::get<ScrubCheckpoint>(*FromProto(message));
  EXPECT_EQ(to.scrub_id, 5u);
  EXPECT_EQ(to.job, kJob);
  EXPECT_EQ(to.output_dir, "/out");
  EXPECT_EQ(to.checkpoint.directory, "step-00000010-g1");
  EXPECT_EQ(to.checkpoint.shards.at(0).checksum, "xxh3-tree:1");
  EXPECT_EQ(to.max_bytes_per_second, 1000u);
  from.set_job_id("../x");
  EXPECT_FALSE(FromProto(message));
  message.mutable_cancel_scrub()->set_scrub_id(6);
  EXPECT_EQ(std::get<CancelScrub>(*FromProto(message)).scrub_id, 6u);

  const auto sent = ToProto(CheckpointScrubbed{5, kJob, "step-00000010-g1",
                                               ScrubOutcome::kUnreadable, "f", "I/O \xff error"});
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->checkpoint_scrubbed().scrub_id(), 5u);
  EXPECT_EQ(sent->checkpoint_scrubbed().job_id(), kJob.value);
  EXPECT_EQ(sent->checkpoint_scrubbed().directory(), "step-00000010-g1");
  EXPECT_EQ(sent->checkpoint_scrubbed().outcome(), v1::SCRUB_OUTCOME_UNREADABLE);
  EXPECT_EQ(sent->checkpoint_scrubbed().file(), "f");
  EXPECT_TRUE(sent->checkpoint_scrubbed().detail().starts_with("I/O "));
  EXPECT_EQ(sent->checkpoint_scrubbed().detail().find('\xff'), std::string::npos);
}

TEST(Conversions, WhatRecoveryAsksForKeepsEveryField) {
  v1::CoordinatorMessage message;
  message.mutable_prepare()->set_job_id(kJob.value);
  message.mutable_prepare()->set_spare(true);
  message.mutable_prepare()->set_standbys(2);
  EXPECT_TRUE(std::get<Prepare>(*FromProto(message)).spare);
  EXPECT_EQ(std::get<Prepare>(*FromProto(message)).standbys, 2);
  v1::Abort* abort = message.mutable_abort();
  abort->set_job_id(kJob.value);
  abort->set_generation(3);
  abort->set_reason("rank 2 exited");
  abort->set_grace_seconds(0.5);
  abort->set_park_seconds(1);
  abort->add_kill_ranks(4);
  const Abort to = std::get<Abort>(*FromProto(message));
  EXPECT_EQ(to.generation, 3);
  EXPECT_EQ(to.reason, "rank 2 exited");
  EXPECT_EQ(to.grace_seconds, 0.5);
  EXPECT_EQ(to.park_seconds, 1);
  EXPECT_EQ(to.kill_ranks, std::vector<int>{4});
  v1::Stop* stop = message.mutable_stop();
  stop->set_job_id(kJob.value);
  stop->set_generation(3);
  stop->set_reason("drained");
  EXPECT_EQ(std::get<Stop>(*FromProto(message)).generation, 3);
  EXPECT_EQ(std::get<Stop>(*FromProto(message)).reason, "drained");
}

}  // namespace
}  // namespace muster::worker
