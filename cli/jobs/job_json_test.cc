#include "cli/jobs/job_json.h"

#include <gtest/gtest.h>

#include <csignal>

#include "cli/jobs/testing/canned_job.h"

namespace muster {
namespace {

TEST(JobJson, NamesTheRankThatTheOthersWaitForWhereThereIsOne) {
  v1::Job job = CannedJob();
  EXPECT_TRUE(JobJson(job).at("slow_rank").is_null());
  v1::SlowRank& slow = *job.mutable_slow_rank();
  slow.set_rank(1);
  slow.set_node("node-2");
  slow.set_seconds(1.5);
  slow.set_others_seconds(1);
  EXPECT_EQ(JobJson(job)["slow_rank"], (Json{{"rank", 1},
                                             {"node", "node-2"},
                                             {"seconds", 1.5},
                                             {"others_seconds", 1.0},
                                             {"phase", nullptr}}));
}

TEST(JobJson, HasEveryPromisedKey) {
  const Json json = JobJson(CannedJob());
  EXPECT_EQ(json["id"], "7f3a9c1e2b");
  EXPECT_EQ(json["name"], "llama-chat");
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["generation"], 2);
  EXPECT_EQ(json["step"], 120);
  EXPECT_EQ(json["loss"], 2.5);
  EXPECT_EQ(json["output_dir"], "/jobs/out");
  EXPECT_EQ(json["submitted"], "2023-11-14T22:13:20.000Z");
  EXPECT_TRUE(json["ended"].is_null());
  ASSERT_EQ(json["ranks"].size(), 2u);
  EXPECT_EQ(json["ranks"][1]["rank"], 1);
  EXPECT_EQ(json["ranks"][1]["node"], "node-2");
  EXPECT_EQ(json["ranks"][1]["pid"], 101);
  EXPECT_EQ(json["ranks"][1]["state"], "running");
  EXPECT_TRUE(json["ranks"][1]["exit_code"].is_null());
  ASSERT_EQ(json["attempts"].size(), 2u);
  const Json& first = json["attempts"][0];
  EXPECT_EQ(first["generation"], 1);
  EXPECT_EQ(first["started"], "2023-11-14T22:13:21.000Z");
  EXPECT_EQ(first["ended"], "2023-11-14T22:14:01.000Z");
  EXPECT_EQ(first["cause"], "rank 1 on node-2 was killed by SIGKILL");
  EXPECT_EQ(first["failed_rank"], 1);
  EXPECT_EQ(first["resumed_step"], 0);
  EXPECT_TRUE(first["seconds"]["detect"].is_null());
  const Json& second = json["attempts"][1];
  EXPECT_TRUE(second["ended"].is_null());
  EXPECT_TRUE(second["cause"].is_null());
  EXPECT_TRUE(second["failed_rank"].is_null());
  EXPECT_EQ(second["resumed_step"], 80);
  EXPECT_EQ(second["seconds"], (Json{{"detect", 0.01},
                                     {"abort", 0.03},
                                     {"reform", 0.31},
                                     {"load", 0.2},
                                     {"first_step", 0.16}}));
  EXPECT_EQ(first["tier"], "launch");
  EXPECT_EQ(first["cause_kind"], "rank_killed");
  EXPECT_EQ(first["card"], (Json{{"what", "SIGKILL"},
                                 {"step", 87},
                                 {"phase", "backward"},
                                 {"micro_batch", 3},
                                 {"last_collective", "world: 812 enqueued, 811 completed"},
                                 {"facts", {"its node had 40 MiB free"}},
                                 {"advice", "Look into the kernel log of node-2."}}));
  EXPECT_EQ(second["tier"], "in_place");
  EXPECT_TRUE(second["cause_kind"].is_null());
  EXPECT_TRUE(second["card"].is_null());
  EXPECT_EQ(second["world_size"], 2);
  EXPECT_EQ(second["nodes"], (Json{"node-1", "node-2"}));
  EXPECT_EQ(second["spares"], Json::array());
  EXPECT_EQ(second["lent"], Json::array());
  EXPECT_EQ(second["resumed_from"], "checkpoint");
  EXPECT_EQ(json["checkpoints"][0]["directory"], "step-00000080-g1");
  EXPECT_EQ(json["checkpoints"][0]["world_size"], 2);
  EXPECT_EQ(json["checkpoints"][0]["bytes"], 6 << 20);
  EXPECT_TRUE(json["checkpoints"][0]["eval_loss"].is_null());
}

TEST(JobJson, WhatIsNotKnownIsNull) {
  v1::Job job;
  job.set_id("a");
  job.set_eta_seconds(-1);
  job.add_ranks()->set_state(v1::RANK_STATE_PREPARED);
  auto* attempt = job.add_attempts();
  attempt->set_resumed_step(-1);
  attempt->mutable_seconds()->set_detect(-1);
  const Json json = JobJson(job);
  for (const char* key : {"loss", "max_steps", "eta_seconds", "tokens_per_second", "reason",
                          "output_dir", "submitted", "started", "ended"})
    EXPECT_TRUE(json[key].is_null()) << key;
  EXPECT_EQ(json["state"], "unknown");
  EXPECT_TRUE(json["ranks"][0]["pid"].is_null());
  EXPECT_EQ(json["ranks"][0]["state"], "prepared");
  EXPECT_TRUE(json["attempts"][0]["resumed_step"].is_null());
  EXPECT_TRUE(json["attempts"][0]["seconds"]["detect"].is_null());
}

TEST(JobJson, AnExitedRankHasItsExit) {
  v1::RankStatus rank;
  rank.set_state(v1::RANK_STATE_EXITED);
  rank.mutable_exit()->set_signal(SIGKILL);
  EXPECT_EQ(RankWord(rank), "killed by SIGKILL");
  rank.mutable_exit()->set_signal(0);
  rank.mutable_exit()->set_exit_code(78);
  EXPECT_EQ(RankWord(rank), "exited 78");
  v1::Job job;
  *job.add_ranks() = rank;
  EXPECT_EQ(JobJson(job)["ranks"][0]["exit_code"], 78);
  EXPECT_TRUE(JobJson(job)["ranks"][0]["signal"].is_null());
  EXPECT_EQ(SignalName(99), "signal 99");
}

TEST(StateWord, IsLowerCaseAndForgivesNewerStates) {
  EXPECT_EQ(StateWord(v1::JOB_STATE_RECOVERING), "recovering");
  EXPECT_EQ(StateWord(v1::NODE_STATE_QUARANTINED), "quarantined");
  EXPECT_EQ(StateWord(static_cast<v1::JobState>(77)), "unknown");
}

TEST(NodeJson, HasEveryPromisedKey) {
  v1::Node node;
  node.set_name("node-1");
  node.set_state(v1::NODE_STATE_READY);
  node.set_address("127.0.0.1");
  node.set_slots(2);
  node.set_pid(9);
  const Json json = NodeJson(node);
  EXPECT_EQ(json["name"], "node-1");
  EXPECT_EQ(json["state"], "ready");
  EXPECT_EQ(json["address"], "127.0.0.1");
  EXPECT_EQ(json["slots"], 2);
  EXPECT_EQ(json["pid"], 9);
}

}  // namespace
}  // namespace muster
