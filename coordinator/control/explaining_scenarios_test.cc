// Scenarios of explanations, as a whole controller gives them: of jobs that wait, and of job files
// that are not submitted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/job_spec/parse.h"
#include "coordinator/control/explaining.h"
#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Yaml(const std::string& name, int nodes, const std::string& limit,
                 const std::string& more = "") {
  return "name: " + name + "\nresources: {nodes: " + std::to_string(nodes) +
         (limit.empty() ? "" : ", time_limit: " + limit) + "}\nworkdir: /jobs\ncommand: [x]\n" +
         more;
}

struct Explained : ControlHarness {
  Explained() {
    Join("n1");
    Join("n2");
  }
  Explanation Why(const JobId& id) const { return Answer(*controller().AskWhy(id, now())); }
  Result<std::shared_ptr<const WhyQuestion>> Ask(const std::string& yaml) const {
    return controller().AskWhy(*ParseJobSpec(yaml), "", now());
  }
  Explanation WouldBe(const std::string& yaml) const { return Answer(**Ask(yaml)); }
  std::uint64_t Index() const { return (*Ask(Yaml("any", 1, "")))->view->index; }
  Reply SubmitIf(const std::string& yaml, std::uint64_t index) {
    SubmitRequested request{.request = 900, .spec_yaml = yaml, .new_id = JobId{"checked"}};
    request.spec = ParseJobSpec(yaml);
    request.check_index = index;
    Handle(request);
    return LastReply();
  }
};

std::vector<std::string> Codes(const Explanation& explanation) {
  std::vector<std::string> codes;
  for (const WaitCause& cause : explanation.causes) codes.emplace_back(Name(cause.code));
  return codes;
}

const Change* ChangeOf(const Explanation& explanation, ChangeKey key) {
  const auto change = std::ranges::find(explanation.changes, key, &Change::key);
  return change == explanation.changes.end() ? nullptr : &*change;
}

TEST(ExplainingScenarios, AWideJobNamesTheBlockerItsEndAndTheChangeThatStartsIt) {
  Explained c;
  const JobId first = c.Submit(Yaml("first", 1, "1h"));
  c.StartAll(first);
  const JobId wide = c.Submit(Yaml("wide", 2, "1h"));
  const Explanation why = c.Why(wide);
  EXPECT_THAT(Codes(why), ElementsAre("occupied"));
  EXPECT_EQ(why.causes[0].nodes, 1);
  EXPECT_EQ(why.causes[0].lack, Lack::kSlots);
  ASSERT_THAT(why.blockers, SizeIs(1));
  EXPECT_EQ(why.blockers[0].job, first);
  EXPECT_FALSE(why.blockers[0].predicted);
  ASSERT_TRUE(why.waiting.promise);
  EXPECT_EQ(why.blockers[0].at, why.waiting.promise->start);
  ASSERT_THAT(why.changes, SizeIs(1));
  EXPECT_EQ(why.changes[0].key, ChangeKey::kNodes);
  EXPECT_EQ(why.changes[0].request.nodes, 1);
}

TEST(ExplainingScenarios, ALongJobBehindAPromiseWouldStartWithAShorterTimeLimit) {
  Explained c;
  c.StartAll(c.Submit(Yaml("first", 1, "1h")));
  const JobId wide = c.Submit(Yaml("wide", 2, "1h"));
  const JobId longer = c.Submit(Yaml("longer", 1, "3h"));
  const Explanation why = c.Why(longer);
  EXPECT_THAT(Codes(why), ElementsAre("time_limit", "reserved"));
  EXPECT_EQ(why.causes[0].job, wide);
  const Change* change = ChangeOf(why, ChangeKey::kTimeLimit);
  ASSERT_NE(change, nullptr);
  const Duration limit =
      change->request.length - c.controller().AskWhy(longer, c.now())->beyond_limit;
  const auto whole = std::chrono::duration_cast<seconds>(limit).count();
  UpdateRequested update{.job = longer.value};
  update.time_limit_seconds = whole + 1;
  ASSERT_TRUE(c.Update(update).status.ok());
  EXPECT_EQ(c.State(longer), JobState::kQueued);
  update.time_limit_seconds = whole;
  ASSERT_TRUE(c.Update(update).status.ok());
  EXPECT_NE(c.State(longer), JobState::kQueued) << c.Timeline();
}

TEST(ExplainingScenarios, AJobThatWasPromisedALaterStartIsNotBeforeAnEarlierOne) {
  Explained c;
  const JobId first = c.Submit(Yaml("first", 1, "1h"));
  c.StartAll(first);
  const JobId wide = c.Submit(Yaml("wide", 2, "1h"));
  c.Submit(Yaml("longer", 1, "3h"));
  const Explanation why = c.Why(wide);
  EXPECT_THAT(Codes(why), ElementsAre("occupied"));
  ASSERT_THAT(why.blockers, SizeIs(1));
  EXPECT_EQ(why.blockers[0].job, first);
}

TEST(ExplainingScenarios, ACeilingIsNamedWithWhatIsUsed) {
  Explained c;
  c.ApplyQueues("queues: {default: {}, a: {ceiling: {slots: 1}}}", 0);
  c.StartAll(c.Submit(Yaml("first", 1, "", "queue: a\n")));
  const Explanation why = c.Why(c.Submit(Yaml("second", 1, "", "queue: a\n")));
  ASSERT_THAT(Codes(why), ElementsAre("quota", "occupied"));
  EXPECT_EQ(why.causes[0].queue, "a");
  EXPECT_EQ(why.causes[0].used.slots, 1);
  EXPECT_EQ(why.causes[0].wanted.slots, 1);
  EXPECT_EQ(why.causes[0].ceiling.slots, 1);
  ASSERT_THAT(why.blockers, SizeIs(1));
  EXPECT_TRUE(why.blockers[0].in_queue);
  const Change* change = ChangeOf(why, ChangeKey::kQueue);
  ASSERT_NE(change, nullptr);
  EXPECT_EQ(change->request.queue, 0);
}

TEST(ExplainingScenarios, AHigherClassSaysWhosePromiseItWouldDelay) {
  Explained c;
  c.ApplyQueues("classes: {urgent: 10}\nqueues: {default: {}}\n", 0);
  c.StartAll(c.Submit(Yaml("first", 1, "1h")));
  const JobId wide = c.Submit(Yaml("wide", 2, "1h"));
  const JobId longer = c.Submit(Yaml("longer", 1, "3h"));
  const Change* change = nullptr;
  const Explanation why = c.Why(longer);
  change = ChangeOf(why, ChangeKey::kClass);
  ASSERT_NE(change, nullptr);
  ASSERT_THAT(change->delays, SizeIs(1));
  EXPECT_EQ(change->delays[0].job, wide);
  EXPECT_EQ(change->delays[0].cause, DelayCause::kClass);
  EXPECT_GT(change->delays[0].later, change->delays[0].promised + hours(1));
}

TEST(ExplainingScenarios, WhatKeepsAJobBackIsNamedInsteadOfNodes) {
  Explained c;
  const JobId held = c.Submit(Yaml("held", 1, "", "hold: true\n"));
  EXPECT_THAT(Codes(c.Why(held)), ElementsAre("held"));
  const JobId later = c.Submit(Yaml("later", 1, ""));
  EXPECT_THAT(Codes(c.Why(later)), IsEmpty()) << "it runs";
  c.StartAll(later);
  c.Suspend(later);
  c.QuiesceAll(later);
  EXPECT_THAT(Codes(c.Why(later)), ElementsAre("suspended"));
}

TEST(ExplainingScenarios, NodesThatAreDrainedAreNamed) {
  Explained c;
  c.Drain("n2");
  const Explanation why = c.Why(c.Submit(Yaml("wide", 2, "")));
  EXPECT_THAT(Codes(why), ElementsAre("health"));
  EXPECT_EQ(why.causes[0].state, "drained");
  EXPECT_THAT(why.causes[0].names, ElementsAre(NodeName{"n2"}));
}

TEST(ExplainingScenarios, AQuestionLooksAtNoNodeThatTheSharedViewKnows) {
  Explained c;
  c.Drain("n2");
  const JobId wide = c.Submit(Yaml("wide", 2, ""));
  const auto question = c.controller().AskWhy(wide, c.now());
  EXPECT_THAT(question->causes, IsEmpty());
  ASSERT_THAT(question->view->away, SizeIs(1));
  EXPECT_EQ(question->view->away[0].intact.name, NodeName{"n2"});
  EXPECT_THAT(Codes(Answer(*question)), ElementsAre("health"));
  EXPECT_THAT(Codes(c.WouldBe(Yaml("other", 2, ""))), ElementsAre("health"));
}

TEST(ExplainingScenarios, AQueueWithAGuaranteeSaysWhoWouldGiveWayThere) {
  Explained c;
  c.ApplyQueues(
      "classes: {urgent: 10}\npreemption: {after: 10s}\n"
      "queues: {default: {}, a: {guarantee: {slots: 1}}}",
      0);
  const JobId base = c.Submit(Yaml("base", 2, ""));
  c.StartAll(base);
  c.Advance(minutes(1));
  const JobId waits = c.Submit(Yaml("waits", 1, ""));
  const Explanation why = c.Why(waits);
  for (const ChangeKey key : {ChangeKey::kClass, ChangeKey::kQueue}) {
    const Change* change = ChangeOf(why, key);
    ASSERT_NE(change, nullptr) << Name(key);
    ASSERT_THAT(change->reclaims, SizeIs(1));
    EXPECT_EQ(change->reclaims[0].victim, base);
    EXPECT_EQ(change->reclaims[0].cause,
              key == ChangeKey::kClass ? ReclaimCause::kClass : ReclaimCause::kGuarantee);
    EXPECT_GT(change->start, c.now().mono);
  }
  UpdateRequested update{.job = waits.value};
  update.queue = "a";
  ASSERT_TRUE(c.Update(update).status.ok());
  EXPECT_EQ(c.Job(base).record->reclaim.claimant, waits) << c.Timeline();
  const Explanation now = c.Why(waits);
  EXPECT_EQ(ChangeOf(now, ChangeKey::kClass), nullptr) << "a gang gives way to it as it is";
}

TEST(ExplainingScenarios, TheEndOfATrainJobWithoutALimitIsPredicted) {
  RunningJob c;
  c.Advance(seconds(10));
  c.StepTo(c.id, 20);
  c.Advance(seconds(10));
  c.StepTo(c.id, 30);
  const JobId next = c.Submit(CommandYaml("next"));
  const Explanation why = Answer(*c.controller().AskWhy(next, c.now()));
  ASSERT_THAT(why.blockers, SizeIs(1));
  EXPECT_TRUE(why.blockers[0].predicted);
  EXPECT_GT(why.blockers[0].at, c.now().mono);
  EXPECT_FALSE(why.waiting.promise) << "a prediction is no promise";
}

TEST(ExplainingScenarios, APredictedEndHasMedianStepsEvaluationsAndAnExport) {
  RunningJob c;
  c.Checkpoint(c.id, 12);
  const auto finishes = [&c](Step step, double step_seconds) {
    RankProgress rank{.step = step, .step_seconds = step_seconds, .max_steps = 100};
    rank.steps_done = step;
    rank.phase_seconds.resize(kTrainPhaseCount);
    rank.phase_seconds[static_cast<std::size_t>(TrainPhase::kEvaluating)] =
        1.5 * static_cast<double>(step);
    rank.phase_seconds[static_cast<std::size_t>(TrainPhase::kCheckpoint)] =
        0.5 * static_cast<double>(step);
    c.Deliver("n1", Progress{.job = c.id, .generation = 1, .ranks = {rank}});
  };
  for (Step step = 13; step <= 20; ++step) finishes(step, step == 19 ? 500.0 : 3.0);
  const double saves = c.Job(c.id).record->checkpoint_seconds;
  const Explanation why = Answer(*c.controller().AskWhy(c.Submit(CommandYaml("next")), c.now()));
  ASSERT_THAT(why.blockers, SizeIs(1));
  EXPECT_NEAR(ToSeconds(why.blockers[0].at - c.now().mono), 1.2 * (80 * (3 + 2) + saves), 0.1);
}

TEST(ExplainingScenarios, AJobFileSaysWhereItWouldStart) {
  Explained c;
  const Explanation now = c.WouldBe(Yaml("two", 2, ""));
  ASSERT_TRUE(now.placement);
  EXPECT_THAT(now.placement->nodes, ElementsAre(NodeName{"n1"}, NodeName{"n2"}));
  EXPECT_THAT(now.causes, IsEmpty());
  c.StartAll(c.Submit(Yaml("first", 1, "1h")));
  const Explanation later = c.WouldBe(Yaml("two", 2, ""));
  EXPECT_FALSE(later.placement);
  EXPECT_TRUE(later.waiting.promise);
}

TEST(ExplainingScenarios, AJobFileThatSubmitRefusesIsRefusedInTheSameWords) {
  Explained c;
  c.ApplyQueues("queues: {default: {}, a: {ceiling: {slots: 1}}}", 0);
  const std::string yaml = Yaml("big", 2, "", "queue: a\n");
  const auto asked = c.Ask(yaml);
  const Reply submitted = c.SubmitRaw(yaml);
  EXPECT_EQ(asked.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(asked.status().message(), submitted.status.message());
}

TEST(ExplainingScenarios, AnIndexHoldsUntilSomethingThatMattersHasChanged) {
  Explained c;
  const std::uint64_t before = c.Index();
  c.Advance(minutes(5));
  EXPECT_EQ(c.Index(), before) << "time alone changes nothing";
  c.Drain("n2");
  EXPECT_NE(c.Index(), before);
  const Reply refused = c.SubmitIf(Yaml("job", 1, ""), before);
  EXPECT_EQ(refused.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status.message(), HasSubstr("nothing was submitted"));
  c.Undrain("n2");
  EXPECT_EQ(c.Index(), before);
  EXPECT_TRUE(c.SubmitIf(Yaml("job", 1, ""), before).status.ok());
  EXPECT_NE(c.Index(), before);
}

TEST(ExplainingScenarios, AWorkerThatJoinsAgainWithOtherLabelsChangesTheIndex) {
  Explained c;
  ControlHarness::NodeOptions options;
  options.inventory.labels = {{"site", "a"}};
  c.Join("n3", options);
  const std::uint64_t before = c.Index();
  c.Join("n3", options);
  EXPECT_EQ(c.Index(), before) << "it is the same node";
  options.inventory.labels = {{"site", "b"}};
  c.Join("n3", options);
  const std::uint64_t relabelled = c.Index();
  EXPECT_NE(relabelled, before);
  options.inventory.topology.rack = "r1";
  c.Join("n3", options);
  EXPECT_NE(c.Index(), relabelled);
}

TEST(ExplainingScenarios, QuestionsShareAViewUntilAPassIsMadeOrASecondIsOver) {
  Explained c;
  const JobId waits = c.Submit(Yaml("waits", 3, ""));
  const auto view = [&] { return c.controller().AskWhy(waits, c.now())->view; };
  const auto first = view();
  c.Advance(milliseconds(900));
  EXPECT_EQ(view(), first);
  EXPECT_EQ((*c.Ask(Yaml("other", 1, "")))->view, first);
  EXPECT_EQ(c.controller().ReadSchedule(c.now()), first);
  c.Advance(milliseconds(200));
  const auto later = view();
  EXPECT_NE(later, first);
  c.Hold(waits);
  EXPECT_NE((*c.Ask(Yaml("other", 1, "")))->view, later) << "what waits is another";
  c.Submit(Yaml("next", 3, ""));
  const auto after_submit = (*c.Ask(Yaml("other", 1, "")))->view;
  EXPECT_EQ(after_submit->snapshot.requests.size(), 1u);
}

// No pass follows, since nothing could be placed there.
TEST(ExplainingScenarios, AFullNodeThatJoinsAgainWithOtherLabelsChangesTheIndexAtOnce) {
  Explained c;
  c.StartAll(c.Submit(Yaml("full", 2, "")));
  ControlHarness::NodeOptions options;
  const std::uint64_t before = c.Index();
  options.inventory.labels = {{"site", "b"}};
  c.Join("n2", options);
  EXPECT_NE(c.Index(), before);
}

TEST(ExplainingScenarios, ABeginThatPassesChangesTheIndex) {
  Explained c;
  const JobId later = c.Submit(Yaml("later", 2, "", "hold: true\n"));
  UpdateRequested update{.job = later.value};
  update.begin_unix_ms = c.now().unix_ms + 60'000;
  ASSERT_TRUE(c.Update(update).status.ok());
  ASSERT_TRUE(c.ReleaseHeld(later).status.ok());
  const std::uint64_t before = c.Index();
  c.Advance(minutes(2));
  EXPECT_NE(c.Index(), before);
}

}  // namespace
}  // namespace muster
