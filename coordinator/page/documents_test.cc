// The content of the pages' documents for a controller, and what is sent again after a change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/base/json.h"
#include "coordinator/control/testing/control_harness.h"
#include "coordinator/page/job_document.h"
#include "coordinator/page/overview.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;

// A viewed page: its last update, and all of it.
template <typename Document>
struct Page {
  template <typename... Arguments>
  explicit Page(Arguments... arguments) : document(arguments...) {}

  // The keys that were sent.
  std::vector<std::string> Look(const ControlHarness& cluster, const Histories& histories = {}) {
    document.Update(cluster.controller(), histories, cluster.now());
    const std::string text = document.parts().Since(told, cluster.now().unix_ms);
    EXPECT_EQ(text.find('\n'), std::string::npos) << "an event's data is one line";
    const Json message = Json::parse(text);
    told = document.parts().revision();
    if (message["whole"]) parts.clear();
    std::vector<std::string> keys;
    for (const Json& entry : message["set"]) {
      keys.push_back(entry[0]);
      parts[keys.back()] = entry[1];
    }
    for (const Json& key : message["gone"]) {
      parts.erase(key.get<std::string>());
      keys.push_back("-" + key.get<std::string>());
    }
    return keys;
  }

  Document document;
  std::uint64_t told = 0;
  std::map<std::string, Json> parts;
};

using OverviewPage = Page<Overview>;
using JobPage = Page<JobDocument>;

TEST(Overview, OfAUserHasTheJobsThatTheUserMaySee) {
  RunningJob cluster;
  bool sees = false;
  OverviewPage page(std::string("lab"), JobFilter([&](const JobRecord&) { return sees; }));
  OverviewPage all(std::string("lab"));
  const auto has_events = [&](const OverviewPage& of) {
    return std::ranges::any_of(of.parts, [&](const auto& part) {
      return part.first.starts_with("event/") && part.second["job"] == cluster.id.value;
    });
  };
  page.Look(cluster);
  all.Look(cluster);
  const std::string job = "job/" + cluster.id.value;
  EXPECT_FALSE(page.parts.contains(job));
  EXPECT_EQ(page.parts["cluster"]["jobs"], Json::object());
  EXPECT_TRUE(page.parts.contains("node/n1"));
  EXPECT_TRUE(has_events(all));
  EXPECT_FALSE(has_events(page));
  EXPECT_EQ(page.parts["problems"], Json::parse(R"({"count": 0, "first": []})"));
  sees = true;
  page.Look(cluster);
  EXPECT_EQ(page.parts[job], all.parts[job]);
  sees = false;
  page.Look(cluster);
  EXPECT_FALSE(page.parts.contains(job));
}

TEST(Overview, HasJobsNodesSumsAndEvents) {
  RunningJob cluster;
  OverviewPage page(std::string("lab"));
  page.Look(cluster);
  const Json& job = page.parts["job/" + cluster.id.value];
  EXPECT_EQ(job["name"], "tiny");
  EXPECT_EQ(job["state"], "running");
  EXPECT_EQ(job["step"], 12);
  EXPECT_EQ(job["max_steps"], 100);
  EXPECT_EQ(job["ranks"], 2);
  EXPECT_EQ(job["nodes"], 2);
  const Json& node = page.parts["node/n1"];
  EXPECT_EQ(node["state"], "ready");
  EXPECT_EQ(node["used"], 1);
  const Json& sums = page.parts["cluster"];
  EXPECT_EQ(sums["name"], "lab");
  EXPECT_EQ(sums["jobs"]["running"], 1);
  EXPECT_EQ(sums["nodes"]["ready"], 2);
  EXPECT_EQ(sums["used"], 2);
  EXPECT_EQ(page.parts["problems"]["count"], 0);
  EXPECT_EQ(page.parts["event/1"]["kind"], "node_joined");
}

TEST(Overview, HasQueuesIfThereAreSeveralAndGpusOfNodes) {
  ControlHarness cluster;
  cluster.Join("n1", {.slots = 2, .gpus = 2});
  OverviewPage page(std::string("lab"));
  page.Look(cluster);
  EXPECT_EQ(page.parts["queues"], nullptr);
  ASSERT_TRUE(cluster
                  .ApplyQueues("queues: {default: {}, a: {queues: {b: {ceiling: {gpus: 1}}}, "
                               "guarantee: {gpus: 1}, weight: 3}}\n",
                               0)
                  .status.ok());
  const auto yaml = [](const std::string& name) {
    return "name: " + name + "\nworkdir: /jobs\ncommand: [x]\nqueue: b\n" +
           "resources: {nodes: 1, device: cuda, time_limit: 1h}\n";
  };
  cluster.Submit(yaml("first"));
  const JobId waits = cluster.Submit(yaml("second"));
  page.Look(cluster);
  const Json& queues = page.parts["queues"];
  ASSERT_EQ(queues.size(), 3u);
  EXPECT_EQ(queues[1]["name"], "a");
  EXPECT_EQ(queues[1]["share"], 0.75);
  EXPECT_EQ(queues[1]["guarantee"]["gpus"], 1);
  EXPECT_EQ(queues[2]["depth"], 1);
  EXPECT_EQ(queues[2]["used"]["gpus"], 1);
  EXPECT_EQ(queues[2]["ceiling"], (Json{{"gpus", 1}, {"slots", nullptr}}));
  EXPECT_EQ(queues[2]["running"], 1);
  EXPECT_EQ(queues[2]["waiting"], 1);
  const Json& job = page.parts["job/" + waits.value];
  EXPECT_EQ(job["queue"], "b");
  EXPECT_GT(job["planned_start"], cluster.now().unix_ms);
  EXPECT_EQ(page.parts["node/n1"]["gpus"], 2);
  EXPECT_EQ(page.parts["node/n1"]["gpus_used"], 1);
  EXPECT_EQ(page.parts["cluster"]["gpus_used"], 1);
}

TEST(Overview, SendsAgainOnlyWhatHasChanged) {
  RunningJob cluster;
  const JobId other = cluster.Submit(TrainYaml("other"));
  OverviewPage page(std::string("lab"));
  page.Look(cluster);
  EXPECT_THAT(page.Look(cluster), IsEmpty());
  cluster.StepTo(cluster.id, 13, 1.5);
  EXPECT_THAT(page.Look(cluster), UnorderedElementsAre("job/" + cluster.id.value));
  EXPECT_EQ(page.parts["job/" + cluster.id.value]["loss"], 1.5);
  // Heartbeats alone are nothing to tell.
  cluster.Advance(2s);
  EXPECT_THAT(page.Look(cluster), IsEmpty());
}

TEST(Overview, ShowsTheNewestEndedJobsOfTheLastDayAndCountsTheOthers) {
  constexpr std::int64_t kNow = 1'700'000'000'000;
  StoredState stored;
  for (std::size_t i = 0; i < Overview::kMaxEnded + 5; ++i) {
    JobRecord job;
    job.id = {"j" + std::to_string(i)};
    job.name = "old";
    job.spec_yaml = TrainYaml();
    job.submit_order = i + 1;
    job.state = JobState::kSucceeded;
    job.ended_unix_ms = kNow - 1'000'000 + static_cast<std::int64_t>(i);
    stored.jobs.push_back(job);
  }
  stored.jobs[7].ended_unix_ms = kNow - 25 * 3600 * 1000;
  Controller controller{ControllerOptions{}};
  const Now now{TimePoint() + 1h, kNow};
  controller.Restore(stored, now);
  Overview overview("lab");
  overview.Update(controller, {}, now);
  const std::string text = overview.parts().Since(0, kNow);
  EXPECT_THAT(text, HasSubstr("\"hidden_jobs\":5"));
  EXPECT_EQ(text.find("\"job/j7\""), std::string::npos) << "ended more than a day ago";
  EXPECT_EQ(text.find("\"job/j0\""), std::string::npos) << "the oldest of those of the last day";
  EXPECT_THAT(text, HasSubstr("\"job/j5\""));
  // A day later none is left.
  overview.Update(controller, {}, {now.mono, kNow + 24 * 3600 * 1000});
  EXPECT_EQ(overview.parts().Since(0, kNow).find("\"job/"), std::string::npos);
}

TEST(JobDocument, ShowsTheTimelineOfARankThatWasKilled) {
  RunningJob cluster;
  JobPage page(cluster.id);
  page.Look(cluster);
  EXPECT_EQ(page.parts["rank/1"]["state"], "running");
  EXPECT_EQ(page.parts["attempt/1"]["ended"], 0);
  cluster.Exited(cluster.id, 1, {.signal = 9});
  cluster.QuiesceAll(cluster.id);
  page.Look(cluster);
  const Json& attempt = page.parts["attempt/1"];
  EXPECT_EQ(attempt["cause_kind"], "rank_killed");
  EXPECT_EQ(attempt["failed_rank"], 1);
  EXPECT_THAT(attempt["cause"].get<std::string>(), HasSubstr("SIGKILL"));
  EXPECT_TRUE(page.parts.contains("attempt/2"));
  EXPECT_EQ(page.parts["attempt/2"]["tier"], "in_place");
  EXPECT_EQ(page.parts["job"]["state"], "recovering");
  const bool told = std::any_of(page.parts.begin(), page.parts.end(), [](const auto& part) {
    return part.first.starts_with("event/") && part.second["kind"] == "rank_exited";
  });
  EXPECT_TRUE(told);
}

TEST(JobDocument, AnAttemptThatFinishedHasNotFailed) {
  RunningJob cluster;
  JobPage page(cluster.id);
  cluster.Exited(cluster.id, 1, {.signal = 9});
  cluster.QuiesceAll(cluster.id);
  cluster.StartAll(cluster.id);
  cluster.FinishAll(cluster.id);
  page.Look(cluster);
  EXPECT_EQ(page.parts["attempt/1"]["cause_kind"], "rank_killed");
  EXPECT_EQ(page.parts["attempt/1"]["failed"], true);
  EXPECT_EQ(page.parts["attempt/2"]["cause_kind"], "finished");
  EXPECT_EQ(page.parts["attempt/2"]["failed"], false);
  EXPECT_EQ(page.parts["rank/0"]["exit_code"], 0);
  EXPECT_EQ(page.parts["rank/0"]["signal"], 0);
}

TEST(JobDocument, AnAttemptThatWasStoppedOnPurposeHasNotFailed) {
  RunningJob cluster;
  JobPage page(cluster.id);
  cluster.Cancel(cluster.id);
  cluster.QuiesceAll(cluster.id);
  page.Look(cluster);
  EXPECT_EQ(page.parts["attempt/1"]["cause_kind"], "cancelled");
  EXPECT_EQ(page.parts["attempt/1"]["failed"], false);
}

TEST(JobDocument, AStepAddsToTheCurveAndSendsNoOtherPart) {
  RunningJob cluster;
  Histories histories;
  JobPage page(cluster.id);
  for (Step step = 13; step <= 20; ++step) {
    cluster.StepTo(cluster.id, step, 2.0 + 1.0 / static_cast<double>(step));
    histories.Observe(cluster.Job(cluster.id), cluster.now().mono);
  }
  page.Look(cluster, histories);
  ASSERT_TRUE(page.parts.contains("cell/7"));
  EXPECT_EQ(page.parts["cell/7"][1], 20);
  EXPECT_EQ(page.parts["cell/7"][2][2], 2.05) << "the loss, with as many digits as it needs";
  cluster.StepTo(cluster.id, 21);
  histories.Observe(cluster.Job(cluster.id), cluster.now().mono);
  const auto keys = page.Look(cluster, histories);
  EXPECT_THAT(keys, ::testing::Contains("cell/8"));
  EXPECT_THAT(keys, ::testing::Not(::testing::Contains("cell/7")));
  EXPECT_THAT(keys, ::testing::Not(::testing::Contains("spec")));
  EXPECT_THAT(page.Look(cluster, histories), IsEmpty());
}

TEST(JobDocument, CellsThatBecameOneAreGone) {
  RunningJob cluster;
  Histories histories;
  JobPage page(cluster.id);
  StepCurves many;
  for (Step step = 1; step <= static_cast<Step>(StepCurves::kMaxCells); ++step)
    many.Add({step, 1, {2, 1, 1, 1}});
  cluster.StepTo(cluster.id, 13);
  histories.Observe(cluster.Job(cluster.id), cluster.now().mono);
  ASSERT_TRUE(histories.WantsPast(cluster.Job(cluster.id), cluster.now().mono));
  histories.TakePast(cluster.id, many);
  page.Look(cluster, histories);
  EXPECT_TRUE(page.parts.contains("cell/511"));
  many.Add({static_cast<Step>(StepCurves::kMaxCells) + 1, 1, {2, 1, 1, 1}});
  histories.TakePast(cluster.id, many);
  page.Look(cluster, histories);
  EXPECT_FALSE(page.parts.contains("cell/511"));
  EXPECT_TRUE(page.parts.contains("cell/256"));
}

TEST(JobDocument, ShowsNamesAndFilesUnchanged) {
  const std::string yaml = CommandYaml("job", "env: {A: '</script><script>alert(1)</script>'}\n");
  RunningJob cluster(yaml);
  JobPage page(cluster.id);
  page.Look(cluster);
  EXPECT_EQ(page.parts["spec"], yaml);
  EXPECT_EQ(page.parts["job"]["kind"], "command");
  EXPECT_EQ(page.parts["job"]["loss"], nullptr);
}

TEST(JobDocument, ShowsWhatItsTimeWentTo) {
  RunningJob cluster;
  JobPage page(cluster.id);
  cluster.Advance(10s);
  cluster.StepTo(cluster.id, 30);
  page.Look(cluster);
  const Json& goodput = page.parts["goodput"];
  const Goodput books = cluster.Job(cluster.id).goodput(cluster.now().mono);
  ASSERT_EQ(goodput["states"].size(), static_cast<std::size_t>(kTimeStateCount));
  EXPECT_EQ(goodput["states"][0]["state"], "step");
  double sum = 0;
  for (const Json& entry : goodput["states"]) sum += entry["seconds"].get<double>();
  EXPECT_GE(sum, 20) << "of two ranks";
  EXPECT_NEAR(sum, books.total_seconds(), 0.01);
  EXPECT_NEAR(goodput["ratio"].get<double>(), books.ratio(), 0.001);
  OverviewPage overview(std::string("lab"));
  overview.Look(cluster);
  EXPECT_THAT(overview.parts["cluster"]["goodput"].get<std::string>(), HasSubstr(" %"));
}

TEST(JobDocument, OldAttemptsAreNotShown) {
  RunningJob cluster;
  JobPage page(cluster.id);
  page.Look(cluster);
  const int many = static_cast<int>(JobDocument::kMaxAttempts) + 3;
  for (int i = 1; i < many; ++i) {
    cluster.Exited(cluster.id, 1, {.signal = 9});
    cluster.QuiesceAll(cluster.id);
    cluster.Advance(11s);
    cluster.PrepareAll(cluster.id);
    cluster.StartAll(cluster.id);
    cluster.TrainFrom(cluster.id, 12 + i);
  }
  page.Look(cluster);
  EXPECT_FALSE(page.parts.contains("attempt/3"));
  EXPECT_TRUE(page.parts.contains("attempt/4"));
  EXPECT_TRUE(page.parts.contains("attempt/" + std::to_string(many)));
}

}  // namespace
}  // namespace muster
