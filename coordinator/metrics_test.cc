#include "coordinator/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kNoTime = 0;

StoredState OneRunningJob() {
  StoredState state;
  JobRecord job;
  job.id = JobId{"0123456789"};
  job.name = "llama";
  job.state = JobState::kSucceeded;
  job.ended_unix_ms = SystemClock().UnixMillis();
  job.step = 40;
  job.loss = 1.5;
  state.jobs.push_back(job);
  NodeRecord node;
  node.name = NodeName{"n1"};
  node.state = NodeState::kReady;
  node.slots = 8;
  state.nodes.push_back(node);
  return state;
}

TEST(Metrics, ShowsEveryStateOfARunAndOnlyOneIsSet) {
  Controller controller{ControllerOptions{}};
  controller.Restore(OneRunningJob(), Now{SystemClock().Now(), kNoTime});
  const std::string text = Metrics().Render(controller, {});
  EXPECT_THAT(text,
              HasSubstr(R"(muster_run_state{run="0123456789",name="llama",state="succeeded"} 1)"));
  EXPECT_THAT(text,
              HasSubstr(R"(muster_run_state{run="0123456789",name="llama",state="running"} 0)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_node_slots{node="n1"} 8)"));
  EXPECT_THAT(text, HasSubstr("muster_runs_pending 0"));
}

TEST(Metrics, DropsRunsThatEndedLongAgo) {
  StoredState state = OneRunningJob();
  state.jobs[0].ended_unix_ms = 1;
  Controller controller{ControllerOptions{}};
  controller.Restore(std::move(state), Now{SystemClock().Now(), kNoTime});
  EXPECT_THAT(Metrics().Render(controller, {}), Not(HasSubstr("0123456789")));
}

TEST(Metrics, CountsPilotJobsByState) {
  const Controller controller{ControllerOptions{}};
  EdgeFigures edges;
  edges.pilots = {{"ending", 1}, {"running", 2}};
  const std::string text = Metrics().Render(controller, edges);
  EXPECT_THAT(text, HasSubstr("muster_pilots{state=\"ending\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("muster_pilots{state=\"running\"} 2\n"));
}

TEST(Metrics, AddsUpWhatItObserves) {
  Controller controller{ControllerOptions{}};
  controller.Restore({}, Now{SystemClock().Now(), kNoTime});
  Metrics metrics;
  metrics.Observe(RestartObserved{CauseKind::kRankKilled});
  metrics.Observe(RestartObserved{CauseKind::kRankKilled});
  metrics.Observe(LostStepsObserved{7});
  metrics.Observe(QueueWaitObserved{0.5});
  StageSeconds seconds;
  seconds.detect = 0.02;
  metrics.Observe(RecoveryObserved{seconds, 0.7, Rung::kInPlace});
  metrics.Observe(HangObserved{});
  metrics.Observe(StragglerObserved{});
  metrics.Observe(StragglerObserved{});
  for (int i = 0; i < 3; ++i) metrics.Observe(FaultObserved{});
  for (int i = 0; i < 4; ++i) metrics.Observe(CheckpointFailureObserved{});
  for (int i = 0; i < 5; ++i) metrics.Observe(ScrubObserved{ScrubOutcome::kWhole});
  metrics.Observe(ScrubObserved{ScrubOutcome::kDamaged});
  const std::string text = metrics.Render(controller, {});
  EXPECT_THAT(text, HasSubstr(R"(muster_restarts_total{level="gang",cause="rank_killed"} 2)"));
  EXPECT_THAT(text, HasSubstr("muster_lost_steps_total 7"));
  EXPECT_THAT(text, HasSubstr("muster_queue_wait_seconds_count 1"));
  EXPECT_THAT(
      text,
      HasSubstr(R"(muster_recovery_duration_seconds_sum{stage="detect",rung="in_place"} 0.02)"));
  EXPECT_THAT(text, HasSubstr("muster_hangs_total 1"));
  EXPECT_THAT(text, HasSubstr("muster_stragglers_total 2"));
  EXPECT_THAT(text, HasSubstr("muster_injected_faults_total 3"));
  EXPECT_THAT(text, HasSubstr("muster_checkpoint_failures_total 4"));
  EXPECT_THAT(text, HasSubstr(R"(muster_checkpoint_scrubs_total{result="whole"} 5)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_checkpoint_scrubs_total{result="damaged"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_checkpoint_scrubs_total{result="unreadable"} 0)"));
  // Stages that were not reached are not observed.
  EXPECT_THAT(text, Not(HasSubstr(R"(stage="load")")));
}

TEST(Metrics, CountsTheCheckpointsOfARunThatAreNotResumedFrom) {
  StoredState state = OneRunningJob();
  for (const char* refused : {"", "damaged", "damaged"}) {
    CheckpointRecord checkpoint;
    checkpoint.job = state.jobs[0].id;
    checkpoint.directory = "step-" + std::to_string(state.checkpoints.size());
    checkpoint.state = CheckpointState::kCommitted;
    checkpoint.refused = refused;
    state.checkpoints.push_back(checkpoint);
  }
  Controller controller{ControllerOptions{}};
  controller.Restore(std::move(state), Now{SystemClock().Now(), kNoTime});
  EXPECT_THAT(Metrics().Render(controller, {}),
              HasSubstr(R"(muster_checkpoints_damaged{run="0123456789"} 2)"));
}

TEST(Metrics, ServiceDiscoveryNamesTheCoordinatorItself) {
  Controller controller{ControllerOptions{}};
  controller.Restore({}, Now{SystemClock().Now(), kNoTime});
  EXPECT_EQ(Metrics::ServiceDiscovery(controller, "127.0.0.1:9000"),
            R"([{"labels":{"component":"coordinator"},"targets":["127.0.0.1:9000"]}])");
}

}  // namespace
}  // namespace muster
