// Recorded passes of a whole controller: replayed, each gives the plan that it gave; none of what a
// job file keeps to itself is among them.

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "coordinator/control/testing/control_harness.h"
#include "coordinator/replay/recording.h"
#include "coordinator/replay/schedule_record.h"

namespace muster {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// Records what the controller plans, as a coordinator does with --record-schedules.
struct RecordedCluster {
  static ControllerOptions Recording(std::vector<v1::SchedulePass>* passes) {
    ControllerOptions options;
    options.on_pass = [passes](const SchedulerSnapshot& snapshot, const SchedulePlan& plan,
                               std::int64_t unix_ms) {
      passes->push_back(ToProto(snapshot, plan, unix_ms));
    };
    return options;
  }

  std::vector<v1::SchedulePass> passes;
  ControlHarness c{Recording(&passes)};
};

constexpr char kTeams[] =
    "classes: {urgent: 10}\n"
    "queues:\n"
    "  default: {}\n"
    "  a: {guarantee: {gpus: 2}, weight: 3}\n"
    "  b: {queues: {c: {ceiling: {gpus: 4}}, d: {}}}\n";

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool OneIn(int n) { return Pick(1, n) == 1; }

 private:
  std::mt19937 engine_;
};

std::string RandomYaml(Random& random) {
  constexpr const char* kQueues[] = {"default", "a", "c", "d"};
  std::string yaml =
      "name: j\nworkdir: /jobs\ncommand: [x]\nqueue: " + std::string(kQueues[random.Pick(0, 3)]) +
      "\nresources:\n  nodes: " + std::to_string(random.Pick(1, 3)) +
      "\n  ranks_per_node: " + std::to_string(random.Pick(1, 2)) + "\n";
  if (random.OneIn(2)) yaml += "  device: cuda\n";
  if (random.OneIn(3)) yaml += "  spares: 1\n";
  if (!random.OneIn(3)) yaml += "  time_limit: " + std::to_string(random.Pick(5, 90)) + "m\n";
  if (random.OneIn(4)) yaml += "class: urgent\n";
  return yaml + "priority: " + std::to_string(random.Pick(0, 100)) + "\n";
}

void ExpectEqualPlans(const std::vector<v1::SchedulePass>& passes) {
  for (const v1::SchedulePass& pass : passes) {
    const Result<v1::SchedulePlan> replayed = Replan(pass);
    ASSERT_TRUE(replayed.ok()) << replayed.status().message();
    ASSERT_EQ(replayed->SerializeAsString(), pass.plan().SerializeAsString())
        << replayed->DebugString() << pass.plan().DebugString();
  }
}

TEST(ReplayScenarios, EachPassOfARandomClusterReplaysToTheSamePlan) {
  std::size_t placements = 0, promises = 0;
  for (unsigned seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    RecordedCluster cluster;
    ControlHarness& c = cluster.c;
    ASSERT_TRUE(c.ApplyQueues(kTeams, 0).status.ok());
    for (const char* node : {"n1", "n2", "n3"})
      c.Join(node, {.slots = 4, .gpus = random.Pick(0, 4)});
    std::vector<JobId> jobs;
    for (int i = 0; i < 25; ++i) {
      if (const Reply reply = c.SubmitRaw(RandomYaml(random)); reply.status.ok())
        jobs.push_back(std::get<SubmitAccepted>(reply.body).id);
      for (const JobId& job : jobs)
        if (c.State(job) == JobState::kStarting && random.OneIn(2)) c.StartAll(job);
      if (!jobs.empty() && random.OneIn(3)) {
        const JobId& job = jobs[static_cast<std::size_t>(random.Pick(0, int(jobs.size()) - 1))];
        if (c.State(job) == JobState::kRunning) c.FinishAll(job);
        if (c.State(job) == JobState::kQueued) c.Cancel(job);
      }
      if (random.OneIn(8)) c.Drain("n" + std::to_string(random.Pick(1, 3)));
      if (random.OneIn(8)) c.Undrain("n" + std::to_string(random.Pick(1, 3)));
      c.Advance(seconds(random.Pick(0, 2)));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectEqualPlans(cluster.passes));
    for (const v1::SchedulePass& pass : cluster.passes) {
      placements += static_cast<std::size_t>(pass.plan().placements_size());
      for (const v1::ScheduleWaiting& waiting : pass.plan().waiting())
        promises += waiting.has_promise();
    }
  }
  EXPECT_GT(placements, 20u);
  EXPECT_GT(promises, 20u);
}

std::string HourYaml(const std::string& name) {
  return "name: " + name + "\nresources: {time_limit: 1h}\nworkdir: /jobs\ncommand: [x]\n";
}

TEST(ReplayScenarios, AnExportHasWhatTheNextPassIsGiven) {
  RecordedCluster cluster;
  ControlHarness& c = cluster.c;
  c.Join("n1", {.slots = 1});
  c.Submit(HourYaml("first"));
  c.Submit(HourYaml("second"));
  const auto read = c.controller().ReadSchedule(c.now());
  const v1::SchedulePass exported =
      ToProto(read->snapshot, read->Known().plan(), read->now.unix_ms);
  cluster.passes.clear();
  c.Submit(CommandYaml("third"));
  ASSERT_FALSE(cluster.passes.empty());
  v1::SchedulePass next = cluster.passes.back();
  ASSERT_EQ(next.snapshot().requests_size(), exported.snapshot().requests_size() + 1);
  next.mutable_snapshot()->mutable_requests()->RemoveLast();
  EXPECT_EQ(next.snapshot().SerializeAsString(), exported.snapshot().SerializeAsString());
  ExpectEqualPlans({exported});
}

TEST(ReplayScenarios, NothingThatAJobFileKeepsToItselfIsRecorded) {
  RecordedCluster cluster;
  ControlHarness& c = cluster.c;
  c.Join("n1", {.slots = 1, .address = "10.9.8.7", .host_id = "CANARY", .gpus = 1});
  c.Submit(
      "name: CANARY\nworkdir: /CANARY\ncommand: [CANARY, --token, CANARY]\n"
      "env: {CANARY: CANARY}\n",
      "CANARY");
  c.Submit(TrainYaml("CANARY", "env: {TOKEN: CANARY}\n"));
  ASSERT_FALSE(cluster.passes.empty());
  for (const v1::SchedulePass& pass : cluster.passes) {
    const std::string bytes = RecordingFrame(pass);
    EXPECT_EQ(bytes.find("CANARY"), std::string::npos);
    EXPECT_EQ(bytes.find("10.9.8.7"), std::string::npos);
    EXPECT_EQ(bytes.find("gpu0"), std::string::npos) << "ids of devices";
  }
}

}  // namespace
}  // namespace muster
