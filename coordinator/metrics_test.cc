#include "coordinator/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "coordinator/detect/straggler_detector.h"
#include "coordinator/job_metrics.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kNoTime = 0;
constexpr std::int64_t kUnixMillis = 1'700'000'000'000;

Now At() { return {SystemClock().Now(), kUnixMillis}; }

StoredState OneRunningJob() {
  StoredState state;
  JobRecord job;
  job.id = JobId{"0123456789"};
  job.name = "llama";
  job.submit_order = 3;
  job.state = JobState::kSucceeded;
  job.ended_unix_ms = kUnixMillis - 44'000;
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
  const std::string text = Metrics().Render(controller, {}, At());
  EXPECT_THAT(
      text, HasSubstr(R"(muster_job_state{job_id="0123456789",name="llama",state="succeeded"} 1)"));
  EXPECT_THAT(text,
              HasSubstr(R"(muster_job_state{job_id="0123456789",name="llama",state="running"} 0)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_node_slots{node="n1"} 8)"));
  EXPECT_THAT(text, HasSubstr("muster_jobs_pending 0"));
}

TEST(Metrics, DropsRunsThatEndedThreeScrapesAgo) {
  StoredState state = OneRunningJob();
  state.jobs[0].ended_unix_ms = kUnixMillis - 46'000;
  Controller controller{ControllerOptions{}};
  controller.Restore(std::move(state), Now{SystemClock().Now(), kNoTime});
  EXPECT_THAT(Metrics().Render(controller, {}, At()), Not(HasSubstr("0123456789")));
}

TEST(Metrics, CountsPilotJobsByState) {
  const Controller controller{ControllerOptions{}};
  EdgeFigures edges;
  edges.pilots = {{"ending", 1}, {"running", 2}};
  const std::string text = Metrics().Render(controller, edges, At());
  EXPECT_THAT(text, HasSubstr("muster_pilots{state=\"ending\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("muster_pilots{state=\"running\"} 2\n"));
}

TEST(Metrics, AddsUpWhatItObserves) {
  Controller controller{ControllerOptions{}};
  controller.Restore({}, Now{SystemClock().Now(), kNoTime});
  Metrics metrics;
  metrics.Observe(RestartObserved{CauseKind::kRankKilled, Tier::kSpare});
  metrics.Observe(RestartObserved{CauseKind::kRankKilled, Tier::kSpare});
  metrics.Observe(LostStepsObserved{7});
  metrics.Observe(QueueWaitObserved{0.5});
  StageSeconds seconds;
  seconds.detect = 0.02;
  metrics.Observe(
      RecoveryObserved{.seconds = seconds, .total_seconds = 0.7, .tier = Tier::kInPlace});
  metrics.Observe(HangObserved{"stopped"});
  metrics.Observe(StragglerObserved{});
  metrics.Observe(StragglerObserved{});
  for (int i = 0; i < 3; ++i) metrics.Observe(FaultObserved{});
  for (int i = 0; i < 4; ++i)
    metrics.Observe(CheckpointFailureObserved{CheckpointTrouble::kDiskFull});
  metrics.Observe(CheckpointCommittedObserved{0.02});
  for (int i = 0; i < 5; ++i) metrics.Observe(ScrubObserved{ScrubOutcome::kWhole});
  metrics.Observe(ScrubObserved{ScrubOutcome::kDamaged});
  metrics.Observe(RunEndedObserved{JobState::kFailed});
  for (int i = 0; i < 2; ++i) metrics.Observe(RunEndedObserved{JobState::kFailed, true});
  const std::string text = metrics.Render(controller, {}, At());
  EXPECT_THAT(text, HasSubstr(R"(muster_restarts_total{cause="rank_killed",tier="spare"} 2)"));
  EXPECT_THAT(text, HasSubstr("muster_lost_steps_total 7"));
  EXPECT_THAT(text, HasSubstr("muster_queue_wait_seconds_count 1"));
  EXPECT_THAT(
      text,
      HasSubstr(R"(muster_recovery_duration_seconds_sum{stage="detect",tier="in_place"} 0.02)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_nccl_hangs_total{suspect="stopped"} 1)"));
  EXPECT_THAT(text, HasSubstr("muster_stragglers_total 2"));
  EXPECT_THAT(text, HasSubstr("muster_injected_faults_total 3"));
  EXPECT_THAT(text, HasSubstr(R"(muster_checkpoint_failures_total{reason="disk_full"} 4)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_checkpoint_scrubs_total{result="whole"} 5)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_checkpoint_scrubs_total{result="damaged"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_checkpoint_scrubs_total{result="unreadable"} 0)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_checkpoint_failures_total{reason="io_error"} 0)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_checkpoint_duration_seconds_count{phase="commit"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_jobs_ended_total{outcome="failed"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_jobs_ended_total{outcome="time_limit"} 2)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_jobs_ended_total{outcome="succeeded"} 0)"));
  // Stages that were not reached are not observed.
  EXPECT_THAT(
      text, HasSubstr(R"(muster_recovery_duration_seconds_count{stage="load",tier="in_place"} 0)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_nccl_hangs_total{suspect="data"} 0)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_restarts_total{cause="hung",tier="in_place"} 0)"));
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
  EXPECT_THAT(Metrics().Render(controller, {}, At()),
              HasSubstr(R"(muster_checkpoints_damaged{job_id="0123456789"} 2)"));
}

// A run that was launched 1000 s ago, after a long wait, and has come up again once.
StoredState OneRecoveredJob() {
  StoredState state = OneRunningJob();
  JobRecord& job = state.jobs[0];
  job.state = JobState::kRunning;
  job.ended_unix_ms = 0;
  job.started_unix_ms = kUnixMillis - 1'000'000;
  job.generation = 2;
  job.restarts = 1;
  job.checkpoint_seconds = 12;
  job.usage = {{900'000'000, 10'000'000, 20'000'000, 30'000'000, 0, 5'000'000'000, 40'000'000},
               kUnixMillis,
               {TimeState::kStep, true, 1}};
  Figure(state.nodes[0].unused.micros, TimeState::kIdle) = 7'000'000;
  job.time_limit_seconds = 3600;
  job.spec_yaml = R"({"name": "llama", "resources": {"nodes": 1, "time_limit": "2h"},
    "train": {"model": {"path": "/m"}, "data": {"train": "/d"}, "schedule": {"max_steps": 9},
              "checkpoint": {"every": 7}}})";
  for (Generation generation : {1, 2}) {
    AttemptRecord attempt;
    attempt.job = job.id;
    attempt.generation = generation;
    attempt.nodes = {NodeName{"n1"}};
    attempt.ranks = {{.rank = 0, .node = NodeName{"n1"}}};
    attempt.state = generation == 1 ? AttemptState::kEnded : AttemptState::kRunning;
    if (generation == 2) attempt.seconds = {.detect = 1, .abort = 4, .reform = 5, .load = 20};
    state.attempts.push_back(attempt);
  }
  return state;
}

TEST(Metrics, SayWhatARunIsAndWhatItsTimeWentInto) {
  Controller controller{ControllerOptions{}};
  controller.Restore(OneRecoveredJob(), At());
  const std::string text = Metrics().Render(controller, {}, At());
  for (const char* line :
       {R"(muster_job_restarts_total{job_id="0123456789"} 1)",
        R"(muster_job_elapsed_seconds_total{job_id="0123456789"} 1000)",
        R"(muster_job_goodput_seconds_total{job_id="0123456789",state="step"} 900)",
        R"(muster_job_goodput_seconds_total{job_id="0123456789",state="recompute"} 10)",
        R"(muster_job_goodput_seconds_total{job_id="0123456789",state="checkpoint"} 20)",
        R"(muster_job_goodput_seconds_total{job_id="0123456789",state="recovery"} 30)",
        R"(muster_job_goodput_seconds_total{job_id="0123456789",state="hang"} 0)",
        R"(muster_job_goodput_seconds_total{job_id="0123456789",state="queue"} 5000)",
        R"(muster_job_goodput_seconds_total{job_id="0123456789",state="idle"} 40)",
        R"(muster_job_goodput_ratio{job_id="0123456789"} 0.9)",
        R"(muster_cluster_goodput_seconds_total{state="step"} 900)",
        R"(muster_cluster_goodput_seconds_total{state="idle"} 47)",
        R"(muster_job_checkpoint_every_steps{job_id="0123456789"} 7)",
        R"(muster_job_checkpoint_seconds{job_id="0123456789"} 12)",
        R"(muster_job_time_limit_timestamp_seconds{job_id="0123456789"} 1700002600)",
        R"(muster_stop_grace_seconds 60)"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, HasSubstr(R"(muster_job_info{job_id="0123456789",name="llama",attempt="2",)"));
}

TEST(Metrics, SayBeforeWhenARunIsToBeGone) {
  StoredState state = OneRecoveredJob();
  Controller before{ControllerOptions{}};
  before.Restore(state, At());
  const std::string calm = Metrics().Render(before, {}, At());
  EXPECT_THAT(calm, HasSubstr(R"(muster_node_drain_requested{node="n1"} 0)"));
  EXPECT_THAT(calm, Not(HasSubstr("muster_node_leave_timestamp_seconds")));
  EXPECT_THAT(calm, Not(HasSubstr("muster_job_stop_by_timestamp_seconds")));
  state.nodes[0].state = NodeState::kDraining;
  state.nodes[0].drain_reason = "sold";
  state.nodes[0].drain_by_unix_ms = kUnixMillis + 30'000;
  state.jobs[0].state = JobState::kStopping;
  state.jobs[0].stop = StopKind::kSuspend;
  state.jobs[0].stop_by_unix_ms = kUnixMillis + 20'000;
  Controller controller{ControllerOptions{}};
  controller.Restore(std::move(state), At());
  const std::string text = Metrics().Render(controller, {}, At());
  EXPECT_THAT(text, HasSubstr(R"(muster_node_drain_requested{node="n1"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(muster_node_leave_timestamp_seconds{node="n1"} 1700000030)"));
  EXPECT_THAT(text,
              HasSubstr(R"(muster_job_stop_by_timestamp_seconds{job_id="0123456789"} 1700000020)"));
}

// For a run that has been down since it was stored.
TEST(Metrics, GoodputFallsWhileARunRecovers) {
  StoredState state = OneRecoveredJob();
  state.jobs[0].state = JobState::kRecovering;
  state.jobs[0].usage.doing = {TimeState::kRecovery, false, 1};
  const Now begin = At();
  Controller controller{ControllerOptions{}};
  controller.Restore(std::move(state), begin);
  const auto shown = [&](int seconds) {
    return Metrics().Render(
        controller, {},
        {begin.mono + std::chrono::seconds(seconds), begin.unix_ms + std::int64_t{1000} * seconds});
  };
  const std::string run = R"({job_id="0123456789")";
  EXPECT_THAT(shown(0), HasSubstr("muster_job_goodput_ratio" + run + "} 0.9\n"));
  const std::string later = shown(125);
  EXPECT_THAT(later, HasSubstr("muster_job_goodput_ratio" + run + "} 0.8\n"));
  EXPECT_THAT(later,
              HasSubstr("muster_job_goodput_seconds_total" + run + R"(,state="recovery"} 155)"));
}

TEST(Metrics, ARunsTimeDoesNotFallWhenTheClockOfTheDayIsSetBack) {
  const Now begin = At();
  Controller controller{ControllerOptions{}};
  controller.Restore(OneRecoveredJob(), begin);
  Metrics metrics;
  const auto shown = [&](int seconds) {
    return metrics.Render(controller, {},
                          {begin.mono, begin.unix_ms + std::int64_t{1000} * seconds});
  };
  const std::string elapsed = R"(muster_job_elapsed_seconds_total{job_id="0123456789"} )";
  EXPECT_THAT(shown(30), HasSubstr(elapsed + "1030\n"));
  EXPECT_THAT(shown(-600), HasSubstr(elapsed + "1030\n"));
  EXPECT_THAT(shown(31), HasSubstr(elapsed + "1031\n"));
}

// Also while nothing of it runs, so that no rank reports it.
TEST(Metrics, SayWhenARunCameFurther) {
  StoredState state = OneRecoveredJob();
  state.jobs[0].state = JobState::kRecovering;
  state.jobs[0].progress_unix_ms = kUnixMillis - 300'000;
  const std::string family = "muster_job_last_progress_timestamp_seconds";
  Controller recovering{ControllerOptions{}};
  recovering.Restore(state, At());
  EXPECT_THAT(Metrics().Render(recovering, {}, At()),
              HasSubstr(family + R"({job_id="0123456789"} 1699999700)"));
  state.jobs[0].state = JobState::kSuspended;
  state.jobs[0].suspended_unix_ms = kUnixMillis - 200'000;
  Controller suspended{ControllerOptions{}};
  suspended.Restore(state, At());
  EXPECT_THAT(Metrics().Render(suspended, {}, At()), Not(HasSubstr(family)));
}

TEST(Metrics, NameTheRankThatHoldsARunUpAndNoneElse) {
  Controller controller{ControllerOptions{}};
  controller.Restore(OneRecoveredJob(), At());
  JobView view = *controller.FindJob("0123456789");
  const auto shown = [&view] {
    MetricFamilies families;
    double elapsed = 0;
    AddJobMetrics(view, At(), &elapsed, &families);
    return families.Render();
  };
  EXPECT_THAT(shown(), Not(HasSubstr("muster_job_straggler_ratio")));
  const Straggler slow{
      .rank = 3, .node = NodeName{"n1"}, .seconds = 3, .others_seconds = 2, .phase = "data"};
  view.straggler = &slow;
  EXPECT_THAT(
      shown(),
      HasSubstr(R"(muster_job_straggler_ratio{job_id="0123456789",rank="3",node="n1"} 1.5)"));
}

TEST(Metrics, AWorkersHeartbeatAgesUntilItIsLost) {
  StoredState state = OneRunningJob();
  const Now begin = At();
  Controller controller{ControllerOptions{}};
  controller.Restore(state, begin);
  const auto later = [&](int millis) {
    return Now{begin.mono + std::chrono::milliseconds(millis), begin.unix_ms + millis};
  };
  EXPECT_THAT(Metrics().Render(controller, {}, later(3000)),
              HasSubstr(R"(muster_worker_heartbeat_age_seconds{node="n1"} 3)"));
  // A coordinator that did not tick for long would take the silence for its own.
  for (int millis = 100; millis <= 60'000; millis += 100) controller.Handle(Tick{}, later(millis));
  const std::string text = Metrics().Render(controller, {}, later(60'000));
  EXPECT_THAT(text, HasSubstr(R"(muster_node_state{node="n1",state="lost"} 1)"));
  EXPECT_THAT(text, Not(HasSubstr("muster_worker_heartbeat_age_seconds")));
}

TEST(Metrics, ShowQueuesAndWhatTheirJobsHad) {
  StoredState state = OneRunningJob();
  state.queues = {.version = 1,
                  .yaml =
                      "queues: {default: {}, a: {guarantee: {gpus: 2}, ceiling: {gpus: 8}, "
                      "weight: 3}}\n"};
  for (const std::int64_t day : {kOlderDays, std::int64_t{19'000}})
    state.queue_days.push_back({.queue = "a",
                                .day = day,
                                .gpus = {.productive = 3'000'000, .lost = 1'000'000},
                                .slots = {.lost = 500'000}});
  Controller controller{ControllerOptions{}};
  controller.Restore(std::move(state), Now{SystemClock().Now(), kNoTime});
  const std::string text = Metrics().Render(controller, {}, At());
  for (const char* sample :
       {R"(muster_queue_gpus{queue="a",kind="used"} 0)",
        R"(muster_queue_gpus{queue="a",kind="guarantee"} 2)",
        R"(muster_queue_gpus{queue="a",kind="ceiling"} 8)",
        R"(muster_queue_slots{queue="a",kind="used"} 0)",
        R"(muster_queue_jobs{queue="a",state="waiting"} 0)",
        R"(muster_queue_share{queue="a"} 0.75)", R"(muster_queue_usage_share{queue="default"} 0)",
        R"(muster_queue_gpu_seconds_total{queue="a",kind="allocated"} 8)",
        R"(muster_queue_gpu_seconds_total{queue="a",kind="productive"} 6)",
        R"(muster_queue_gpu_seconds_total{queue="a",kind="lost"} 2)",
        R"(muster_queue_slot_seconds_total{queue="a",kind="lost"} 1)"})
    EXPECT_THAT(text, HasSubstr(sample));
  EXPECT_THAT(text, Not(HasSubstr(R"(muster_queue_slots{queue="a",kind="ceiling"})")));
}

// A copy of the days takes some hundred times as long.
TEST(Metrics, TheUsageOfQueuesIsReadWithoutALookAtEachDay) {
  StoredState state;
  for (std::int64_t day = 19'000; day < 19'400; ++day)
    for (int queue = 0; queue < 100; ++queue)
      state.queue_days.push_back(
          {.queue = std::to_string(queue), .day = day, .slots = {.productive = 1, .lost = 2}});
  Controller controller{ControllerOptions{}};
  controller.Restore(std::move(state), Now{SystemClock().Now(), kNoTime});
  const auto best_of = [](const auto& read) {
    Duration best = Duration::max();
    for (int i = 0; i < 5; ++i) {
      const TimePoint begin = SystemClock().Now();
      read();
      best = std::min(best, SystemClock().Now() - begin);
    }
    return best;
  };
  QueueTotals totals;
  const Duration of_totals = best_of([&] { totals = controller.UsageTotals(At()); });
  const Duration of_days = best_of([&] { EXPECT_EQ(controller.UsageByDay(At()).size(), 400u); });
  EXPECT_LT(of_totals * 10, of_days);
  ASSERT_EQ(totals.size(), 100u);
  EXPECT_EQ(totals["7"].slots, (UsedMicros{.productive = 400, .lost = 800}));
}

TEST(Metrics, SayWhenAJobThatWaitsStartsAtTheLatest) {
  StoredState state = OneRunningJob();
  JobRecord& job = state.jobs[0];
  Controller controller{ControllerOptions{}};
  JobView view;
  std::vector<AttemptRecord> attempts;
  std::vector<CheckpointRecord> checkpoints;
  view.record = &job;
  view.attempts = &attempts;
  view.checkpoints = &checkpoints;
  double elapsed = 0;
  const auto shown = [&] {
    MetricFamilies out;
    AddJobMetrics(view, At(), &elapsed, &out);
    return out.Render();
  };
  EXPECT_THAT(shown(), Not(HasSubstr("muster_job_planned_start_timestamp_seconds")));
  job.promise.start_unix_ms = kUnixMillis + 500;
  EXPECT_THAT(shown(),
              HasSubstr("muster_job_planned_start_timestamp_seconds{job_id=\"0123456789\"} "
                        "1700000000.5"));
}

}  // namespace
}  // namespace muster
