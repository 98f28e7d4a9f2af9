// What `muster top` finds worth saying, and how it fits on a screen.
#include "cli/top/top_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cli/jobs/testing/canned_job.h"

namespace muster {
namespace {

constexpr std::int64_t kNow = 1'700'000'100'000;

v1::Node Node(const std::string& name, v1::NodeState state) {
  v1::Node node;
  node.set_name(name);
  node.set_state(state);
  node.set_slots(4);
  node.set_slots_used(2);
  return node;
}

TopModel Healthy() {
  TopModel model;
  model.cluster = "lab";
  v1::ListJobsResponse jobs;
  *jobs.add_jobs() = CannedJob();
  *model.nodes.add_nodes() = Node("node-1", v1::NODE_STATE_READY);
  *model.nodes.add_nodes() = Node("node-2", v1::NODE_STATE_READY);
  model.SetJobs(jobs, kNow);
  return model;
}

std::string Text(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::size_t Characters(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A gang of many, as wide as they come.
v1::Job ManyRanks(int ranks) {
  v1::Job job = CannedJob();
  job.clear_ranks();
  job.clear_progress();
  job.mutable_goodput()->set_ratio(0.9);
  for (const auto& [state, seconds] : {std::pair("step", 90.0), std::pair("hang", 10.0)}) {
    job.mutable_goodput()->add_states()->set_state(state);
    job.mutable_goodput()->mutable_states()->rbegin()->set_seconds(seconds);
  }
  for (int r = 0; r < ranks; ++r) {
    auto* rank = job.add_ranks();
    rank->set_rank(r);
    rank->set_node("node-" + std::to_string(r / 8));
    rank->set_state(v1::RANK_STATE_RUNNING);
    auto* progress = job.add_progress();
    progress->set_rank(r);
    progress->set_step(r == 700 ? 115 : 120);
    progress->set_phase(r == 700 ? v1::TRAIN_PHASE_BACKWARD : v1::TRAIN_PHASE_FORWARD);
    progress->set_step_seconds(1);
    progress->set_rss_bytes(1 << 20);
  }
  return job;
}

TEST(TopView, TheMemoryOfARankWithAGpuIsTheGpus) {
  TopModel model = Healthy();
  v1::Job job = ManyRanks(2);
  job.mutable_progress(1)->set_device_bytes(std::uint64_t{60} << 30);
  job.mutable_progress(1)->set_device_capacity_bytes(std::uint64_t{80} << 30);
  model.SetOpen(job, kNow);
  EXPECT_EQ(model.histories[job.id()].memory.last(), 60.0 * (1 << 30));
  const std::string text = Text(JobLines(model, {.columns = 100, .rows = 40}));
  EXPECT_TRUE(Has(text, HumanBytes(std::uint64_t{60} << 30))) << text;
  EXPECT_TRUE(Has(text, HumanBytes(1 << 20))) << text;
}

TEST(TopProblems, AHealthyClusterHasNone) {
  EXPECT_TRUE(FindProblems(Healthy()).empty());
  EXPECT_TRUE(Has(Text(OverviewLines(Healthy(), {})), "no known problems"));
}

TEST(TopProblems, AJobThatStandsStillIsShownWithTheRanksBehind) {
  TopModel model = Healthy();
  model.SetOpen(ManyRanks(1000), kNow);
  model.now_unix_ms = kNow + 130'000;
  const std::vector<Problem> problems = FindProblems(model);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text,
            "job llama-chat has not finished a step for 2 min 10 s; rank 700 on node-87 is at step "
            "115, in backward");
  EXPECT_EQ(problems[0].command, "muster describe 7f3a9c1e2b");
}

TEST(TopProblems, TheCoordinatorsVerdictOnASlowRankIsShownAtOnce) {
  TopModel model = Healthy();
  v1::SlowRank& slow = *model.jobs.mutable_jobs(0)->mutable_slow_rank();
  slow.set_rank(700);
  slow.set_node("node-87");
  slow.set_seconds(1.5);
  slow.set_others_seconds(1);
  const std::vector<Problem> problems = FindProblems(model);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text,
            "job llama-chat waits for rank 700 on node-87, whose work takes 1.50 times that of the "
            "others");
}

// Ten of its usual steps take longer than what else counts as silence.
TEST(TopProblems, ASlowJobIsGivenItsTime) {
  TopModel model = Healthy();
  for (int step = 1; step <= 20; ++step) model.histories["7f3a9c1e2b"].step_seconds.Add(step, 60);
  model.now_unix_ms = kNow + 130'000;
  EXPECT_TRUE(FindProblems(model).empty());
  model.now_unix_ms = kNow + 700'000;
  EXPECT_EQ(FindProblems(model).size(), 1u);
}

v1::Job* AddJob(v1::ListJobsResponse* jobs, const std::string& id, v1::JobState state) {
  v1::Job* job = jobs->add_jobs();
  job->set_id(id);
  job->set_state(state);
  return job;
}

std::vector<std::string> Texts(const TopModel& model) {
  std::vector<std::string> texts;
  for (const Problem& problem : FindProblems(model)) texts.push_back(problem.text);
  return texts;
}

// What is at stake now stands above what is over, and that above what only waits.
TEST(TopProblems, TheWorstComesFirst) {
  TopModel model = Healthy();
  v1::ListJobsResponse jobs = model.jobs;
  AddJob(&jobs, "q", v1::JOB_STATE_QUEUED)->set_reason("needs 4 nodes, 2 are there");
  AddJob(&jobs, "q2", v1::JOB_STATE_QUEUED)->set_reason("behind job q");
  v1::Job* failed = AddJob(&jobs, "f", v1::JOB_STATE_FAILED);
  failed->set_ended_unix_ms(kNow - 480'000);
  failed->set_reason("its time is up");
  AddJob(&jobs, "r", v1::JOB_STATE_RECOVERING)->set_reason("rank 1 was killed");
  AddJob(&jobs, "u", v1::JOB_STATE_RUNNING)->set_reason("checkpoints fail: disk full");
  v1::Job* nan = AddJob(&jobs, "n", v1::JOB_STATE_RUNNING);
  nan->set_step(7);
  nan->set_loss(std::nan(""));
  model.SetJobs(jobs, kNow);
  *model.nodes.add_nodes() = Node("n9", v1::NODE_STATE_LOST);
  model.SetLost("the coordinator does not answer\n  next: muster up --dir /d", kNow);
  model.SetLost("the coordinator does not answer\n  next: muster up --dir /d", kNow + 3000);
  EXPECT_EQ(
      Texts(model),
      (std::vector<std::string>{
          "no answer for 3 s; the view is out of date: the coordinator does not answer",
          "job n has a loss that is not finite, at step 7", "job u: checkpoints fail: disk full",
          "job r is recovering for 3 s: rank 1 was killed", "node n9 is lost",
          "job f failed 8 min 3 s ago: its time is up",
          "job q waits: needs 4 nodes, 2 are there; 1 more waits"}));
  EXPECT_EQ(FindProblems(model)[0].command, "muster up --dir /d");
}

// For a coordinator elsewhere no command is known to suggest.
TEST(TopProblems, WithoutAnAnswerNoCommandIsSuggestedThatIsNotKnown) {
  TopModel model = Healthy();
  model.SetLost("the coordinator at lab:7000 does not answer", kNow);
  EXPECT_EQ(FindProblems(model)[0].command, "");
  const std::string text = Text(OverviewLines(model, {.columns = 80, .rows = 24}));
  EXPECT_TRUE(Has(text, "the view is out of date")) << text;
  EXPECT_FALSE(Has(text, "next:")) << text;
}

// What a list of jobs is without: attempts, ranks, checkpoints.
TEST(TopProblems, TheDetailShowsSinceWhenAndWhatIsDamaged) {
  TopModel model = Healthy();
  v1::Job detail = ManyRanks(2);
  model.SetDetail(detail, kNow);
  EXPECT_TRUE(FindProblems(model).empty());
  detail.add_checkpoints()->set_refused("rank 1: checksum differs");
  model.SetDetail(detail, kNow);
  EXPECT_EQ(
      Texts(model),
      std::vector<std::string>{
          "job llama-chat cannot resume from 1 of its checkpoints: rank 1: checksum differs"});
  detail.clear_checkpoints();
  detail.set_state(v1::JOB_STATE_RECOVERING);
  detail.clear_attempts();
  auto* attempt = detail.add_attempts();
  attempt->set_state("ended");
  attempt->set_cause("rank 1 was killed");
  attempt->set_ended_unix_ms(kNow - 75'000);
  v1::ListJobsResponse jobs = model.jobs;
  *jobs.mutable_jobs(0) = detail;
  model.SetJobs(jobs, kNow);
  model.SetDetail(detail, kNow);
  EXPECT_EQ(
      Texts(model),
      (std::vector<std::string>{"job llama-chat is recovering for 1 min 15 s: rank 1 was killed"}));
}

TEST(TopModel, ShowsAJobInDetail) {
  TopModel model;
  v1::ListJobsResponse jobs;
  for (const char* id : {"b", "a", "c"}) AddJob(&jobs, id, v1::JOB_STATE_RUNNING);
  AddJob(&jobs, "d", v1::JOB_STATE_QUEUED);
  AddJob(&jobs, "e", v1::JOB_STATE_FAILED);
  model.SetJobs(jobs, kNow);
  EXPECT_EQ(model.NextForDetail(""), "a");
  EXPECT_EQ(model.NextForDetail("a"), "b");
  EXPECT_EQ(model.NextForDetail("b"), "c");
  EXPECT_EQ(model.NextForDetail("c"), "a");
  model.SetJobs({}, kNow);
  EXPECT_EQ(model.NextForDetail("c"), "");
}

TEST(TopProblems, AnOldFailureIsNoNews) {
  TopModel model;
  v1::ListJobsResponse jobs;
  v1::Job* failed = jobs.add_jobs();
  failed->set_state(v1::JOB_STATE_FAILED);
  failed->set_ended_unix_ms(kNow - 3'600'000);
  model.SetJobs(jobs, kNow);
  EXPECT_TRUE(FindProblems(model).empty());
}

TEST(TopModel, AMetricsFileFillsTheCurvesAndGarbageDoesNot) {
  JobHistory history;
  AddMetricsFile(
      "ut off\"}\n{\"step\":1,\"loss\":4.5,\"step_seconds\":0.5}\n[]\n{\"step\":\"x\"}\n"
      "{\"step\":2,\"loss\":null,\"step_seconds\":0.7}\n{\"step\":3,\"loss\":4",
      &history);
  ASSERT_EQ(history.loss.values().size(), 2u);
  EXPECT_EQ(history.loss.values()[0], 4.5);
  EXPECT_TRUE(std::isnan(history.loss.values()[1]));
  EXPECT_EQ(history.step_seconds.values(), (std::vector<double>{0.5, 0.7}));
}

TEST(TopModel, ForgetsJobsThatAreNoLongerListed) {
  TopModel model = Healthy();
  EXPECT_EQ(model.histories.size(), 1u);
  model.SetJobs({}, kNow);
  EXPECT_TRUE(model.histories.empty());
}

TEST(TopView, FitsTheScreenWhateverItShows) {
  TopModel model = Healthy();
  v1::ListJobsResponse jobs = model.jobs;
  for (int i = 0; i < 100; ++i) {
    v1::Job* job = jobs.add_jobs();
    job->set_id("job-" + std::to_string(i));
    job->set_name(std::string(80, 'x'));
    job->set_state(v1::JOB_STATE_QUEUED);
    job->set_reason(std::string(300, 'r'));
    *model.nodes.add_nodes() = Node("n" + std::to_string(i), v1::NODE_STATE_READY);
  }
  model.SetJobs(jobs, kNow);
  model.SetOpen(ManyRanks(1000), kNow);
  for (const bool open : {false, true}) {
    for (const int columns : {20, 40, 80, 133, 300}) {
      for (const int rows : {5, 10, 24, 60}) {
        TopModel shown = model;
        if (!open) shown.open.reset();
        const TopViewOptions options{.columns = columns, .rows = rows};
        const auto lines = open ? JobLines(shown, options) : OverviewLines(shown, options);
        EXPECT_LE(lines.size(), static_cast<std::size_t>(rows)) << columns;
        for (const std::string& line : lines)
          EXPECT_LE(Characters(line), static_cast<std::size_t>(columns)) << line;
      }
    }
  }
}

TEST(TopView, QueuesAreShownIfThereAreSeveralAndGpusIfThereAreSome) {
  TopModel model = Healthy();
  v1::Queue& first = *model.queues.add_queues();
  first.set_name("default");
  EXPECT_FALSE(Has(Text(OverviewLines(model, {.columns = 100})), "QUEUE"));
  for (int i = 0; i < 20; ++i) model.queues.add_queues()->set_name("q" + std::to_string(i));
  v1::Queue& used = *model.queues.mutable_queues(20);
  used.mutable_used()->set_gpus(3);
  used.mutable_guarantee()->set_gpus(8);
  used.mutable_ceiling()->set_gpus(16);
  used.set_parent("q0");
  used.set_share(0.25);
  used.set_usage_share(0.5);
  used.set_running(2);
  used.set_waiting(7);
  model.nodes.mutable_nodes(0)->mutable_inventory()->add_devices();
  model.nodes.mutable_nodes(0)->add_allocated();
  const std::string all = Text(OverviewLines(model, {.columns = 140, .rows = 0}));
  EXPECT_TRUE(
      Has(all, "  q19          3 GPUs          8 GPUs      16 GPUs       25%   50%    2    7"))
      << all;
  EXPECT_TRUE(Has(all, "q0 ")) << "nothing is cut";
  EXPECT_TRUE(Has(all, "GPUs: 1/1"));
  const std::string small = Text(OverviewLines(model, {.columns = 140, .rows = 24}));
  EXPECT_TRUE(Has(small, "q19 ")) << "those with jobs come first\n" << small;
  EXPECT_FALSE(Has(small, "q18 "));
  EXPECT_TRUE(Has(small, "NODES"));
}

TEST(TopView, TheSelectedJobIsInView) {
  TopModel model;
  v1::ListJobsResponse jobs;
  for (int i = 0; i < 100; ++i) {
    v1::Job* job = jobs.add_jobs();
    job->set_id("job-" + std::to_string(i));
    job->set_state(v1::JOB_STATE_RUNNING);
    job->set_submitted_unix_ms(i + 1);
  }
  model.SetJobs(jobs, kNow);
  EXPECT_TRUE(Has(Text(OverviewLines(model, {.selected = 0})), "job-0 "));
  EXPECT_TRUE(Has(Text(OverviewLines(model, {.selected = 57})), "job-57 "));
  EXPECT_TRUE(Has(Text(OverviewLines(model, {.selected = 1000})), "job-99 "));
}

TEST(TopView, WithoutARowLimitEverythingIsPrinted) {
  TopModel model = Healthy();
  model.SetOpen(ManyRanks(300), kNow);
  EXPECT_GT(JobLines(model, {.rows = 0, .keys = false}).size(), 300u);
}

TEST(TopView, TheRankThatHoldsTheOthersUpIsTheFirst) {
  TopModel model = Healthy();
  model.SetOpen(ManyRanks(1000), kNow);
  const auto lines = JobLines(model, {.columns = 100, .rows = 30});
  const auto head = std::find_if(lines.begin(), lines.end(),
                                 [](const std::string& line) { return Has(line, "RANK NODE"); });
  ASSERT_NE(head, lines.end());
  EXPECT_TRUE(Has(*(head + 1), "  700 node-87"));
}

// A job with ordinary numbers on a screen of 80 columns.
TEST(TopView, AHeadAndTitlesHaveTheirPlaceIn80Columns) {
  TopModel model = Healthy();
  v1::ListJobsResponse jobs = model.jobs;
  AddJob(&jobs, "a", v1::JOB_STATE_QUEUED);
  AddJob(&jobs, "b", v1::JOB_STATE_RECOVERING);
  AddJob(&jobs, "c", v1::JOB_STATE_SUCCEEDED);
  model.SetJobs(jobs, kNow);
  for (int step = 1; step < 120; ++step) {
    model.histories["7f3a9c1e2b"].loss.Add(step, 12.3456 - 0.05 * step);
    model.histories["7f3a9c1e2b"].step_seconds.Add(step, 123.456);
  }
  model.SetOpen(ManyRanks(2), kNow);
  const std::string text = Text(JobLines(model, {.columns = 80, .rows = 24}));
  EXPECT_TRUE(Has(text, "nodes: 2 ready  slots: 4/8")) << text;
  EXPECT_TRUE(Has(text, "jobs: 1 queued")) << text;
  EXPECT_TRUE(Has(text, " step time ")) << text;
  EXPECT_TRUE(Has(text, " memory ")) << text;
  EXPECT_TRUE(Has(text, "eta 1m 05s  running")) << text;
}

// A cluster without a name of its own is called by its directory.
TEST(TopView, NodesAndSlotsAreNeverCutForANameThatIsLong) {
  TopModel model = Healthy();
  model.cluster = "/a/directory/whose/name/is/long/all/the/same";
  for (const int columns : {50, 80, 200}) {
    const auto lines = OverviewLines(model, {.columns = columns, .rows = 24});
    EXPECT_TRUE(Has(Text(lines), "nodes: 2 ready  slots: 4/8")) << columns;
    EXPECT_TRUE(Has(Text(lines), "jobs: 1 running")) << columns;
  }
}

TEST(TopView, AJobsPageShowsWhatItsTimeWentTo) {
  TopModel model = Healthy();
  model.SetOpen(CannedJob(), kNow);
  EXPECT_FALSE(Has(Text(JobLines(model, {})), "goodput"));
  model.SetOpen(ManyRanks(2), kNow);
  EXPECT_TRUE(Has(Text(JobLines(model, {})), "goodput 90.0 %; lost to hang 0:00:10 (10.0 %)"));
}

TEST(TopView, NothingFromOutsideCommandsTheTerminal) {
  TopModel model = Healthy();
  v1::ListJobsResponse jobs = model.jobs;
  jobs.mutable_jobs(0)->set_name("evil\x1b[2J\x07name");
  model.SetJobs(jobs, kNow);
  model.nodes.mutable_nodes(0)->set_name(
      "no\x1b]0;title\x07"
      "de");
  EXPECT_EQ(Text(OverviewLines(model, {})).find('\x1b'), std::string::npos);
}

TEST(TopView, ColoursOnlyWhereTheyAreAllowed) {
  const TopModel model = Healthy();
  EXPECT_FALSE(Has(Text(OverviewLines(model, {.color = false})), "\x1b["));
  EXPECT_TRUE(Has(Text(OverviewLines(model, {.color = true})), "\x1b[32m"));
}

}  // namespace
}  // namespace muster
