// Conversions of what is about the node and about a rank's page.

#include <gtest/gtest.h>

#include "worker/service/conversions.h"

namespace muster::worker {
namespace {

RankProgress FullProgress() {
  return {.rank = 3,
          .step = 41,
          .phase = "forward",
          .loss = 1.5,
          .grad_norm = 0.5,
          .learning_rate = 1e-4,
          .step_seconds = 0.25,
          .tokens_per_second = 1000,
          .tokens = 12345,
          .max_steps = 200,
          .rss_bytes = 1 << 20,
          .micro_batch = 2,
          .stores = 99,
          .collectives = {{"world", 8, 7, 6, 4096, 0}},
          .busy_seconds = 3.5,
          .wait_seconds = 0.5,
          .steps_done = 40,
          .process_state = "T",
          .cpu_seconds = 17.25,
          .phase_seconds = {0.125, 0.25},
          .snapshot_step = 41,
          .device_bytes = 60,
          .device_capacity_bytes = 80};
}

void ExpectFullProgress(const v1::RankProgress& progress) {
  EXPECT_EQ(progress.rank(), 3);
  EXPECT_EQ(progress.step(), 41);
  EXPECT_EQ(progress.phase(), "forward");
  EXPECT_EQ(progress.micro_batch(), 2);
  EXPECT_EQ(progress.stores(), 99u);
  ASSERT_EQ(progress.collectives_size(), 1);
  EXPECT_EQ(progress.collectives(0).group(), "world");
  EXPECT_EQ(progress.collectives(0).enqueued(), 8u);
  EXPECT_EQ(progress.collectives(0).started(), 7u);
  EXPECT_EQ(progress.collectives(0).completed(), 6u);
  EXPECT_EQ(progress.collectives(0).bytes(), 4096u);
  EXPECT_EQ(progress.busy_seconds(), 3.5);
  EXPECT_EQ(progress.wait_seconds(), 0.5);
  EXPECT_EQ(progress.steps_done(), 40);
  EXPECT_EQ(progress.process_state(), "T");
  EXPECT_EQ(progress.cpu_seconds(), 17.25);
  ASSERT_EQ(progress.phase_seconds_size(), 2);
  EXPECT_EQ(progress.phase_seconds(1), 0.25);
  EXPECT_EQ(progress.snapshot_step(), 41);
  EXPECT_EQ(progress.device_bytes(), 60u);
  EXPECT_EQ(progress.device_capacity_bytes(), 80u);
}

TEST(NodeConversions, ProgressCarriesAllOfThePage) {
  const auto message = ToProto(Progress{{"00c0ffee00"}, 2, {FullProgress()}});
  ASSERT_TRUE(message && message->progress().ranks_size() == 1);
  ExpectFullProgress(message->progress().ranks(0));
}

TEST(NodeConversions, AnExitCarriesItsLastPageAndWhatTheHostKnows) {
  RankExited exited{.job = {"00c0ffee00"}, .generation = 2, .rank = 3};
  exited.out_of_memory = true;
  exited.asked_to_stop = true;
  exited.last = FullProgress();
  exited.facts = {"the kernel ended it"};
  const auto message = ToProto(exited);
  ASSERT_TRUE(message);
  EXPECT_TRUE(message->rank_exited().out_of_memory());
  EXPECT_TRUE(message->rank_exited().asked_to_stop());
  ExpectFullProgress(message->rank_exited().last());
  ASSERT_EQ(message->rank_exited().facts_size(), 1);
  EXPECT_EQ(message->rank_exited().facts(0), "the kernel ended it");
}

TEST(NodeConversions, NoticesAndAnswersKeepEveryField) {
  const auto notice =
      ToProto(NodeNotice{NodeNoticeKind::kXid, "Xid 79", 30, {"1", "2"}, true, {"still"}});
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->node_notice().kind(), v1::NODE_NOTICE_KIND_XID);
  EXPECT_EQ(notice->node_notice().detail(), "Xid 79");
  EXPECT_EQ(notice->node_notice().deadline_seconds(), 30);
  EXPECT_EQ(notice->node_notice().devices_size(), 2);
  EXPECT_TRUE(notice->node_notice().fatal());
  ASSERT_EQ(notice->node_notice().standing_size(), 1);
  EXPECT_EQ(notice->node_notice().standing(0), "still");

  const auto result = ToProto(ProbeResult{7, {"n3"}, ProbeOutcome::kRefused});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->probe_result().probe_id(), 7u);
  EXPECT_EQ(result->probe_result().node(), "n3");
  EXPECT_EQ(result->probe_result().outcome(), v1::PROBE_OUTCOME_REFUSED);

  const auto done = ToProto(FaultDone{9, "no such rank"});
  ASSERT_TRUE(done);
  EXPECT_EQ(done->fault_done().request_id(), 9u);
  EXPECT_EQ(done->fault_done().error(), "no such rank");
}

TEST(NodeConversions, ProbesAndFaultsAreRead) {
  v1::CoordinatorMessage message;
  message.mutable_probe()->set_probe_id(7);
  message.mutable_probe()->set_node("n3");
  message.mutable_probe()->set_address("10.0.0.3");
  message.mutable_probe()->set_port(4711);
  message.mutable_probe()->set_timeout_ms(500);
  const auto probe = FromProto(message);
  ASSERT_TRUE(probe && std::holds_alternative<Probe>(*probe));
  EXPECT_EQ(std::get<Probe>(*probe).node, NodeName{"n3"});
  EXPECT_EQ(std::get<Probe>(*probe).address, "10.0.0.3");
  EXPECT_EQ(std::get<Probe>(*probe).port, 4711);
  EXPECT_EQ(std::get<Probe>(*probe).timeout_ms, 500);

  message.mutable_inject_fault()->set_request_id(9);
  message.mutable_inject_fault()->set_kind("kill-node");
  const auto fault = FromProto(message);
  ASSERT_TRUE(fault && std::holds_alternative<InjectFault>(*fault)) << "of the node: no job";
  EXPECT_EQ(std::get<InjectFault>(*fault).kind, "kill-node");
  message.mutable_inject_fault()->set_job_id("../..");
  EXPECT_FALSE(FromProto(message)) << "a job's id is a name of a directory";
}

TEST(NodeConversions, AHelloSaysWhereTheNodeIsAndWhetherItTakesFaults) {
  const auto hello = MakeHello({.node = "n0",
                                .failure_domain = "rack1",
                                .allows_faults = true,
                                .report = {"between nodes: sockets", "no \xff text"}},
                               {});
  EXPECT_EQ(hello.hello().failure_domain(), "rack1");
  EXPECT_TRUE(hello.hello().allows_faults());
  ASSERT_EQ(hello.hello().report_size(), 2);
  EXPECT_EQ(hello.hello().report(0), "between nodes: sockets");
  EXPECT_EQ(hello.hello().report(1), "no \xEF\xBF\xBD text");
}

}  // namespace
}  // namespace muster::worker
