// The users of a queue: their shares, which outlive restarts, and what each of them may have.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/job_spec/parse.h"
#include "coordinator/control/explaining.h"
#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

constexpr char kUsers[] =
    "users: {ada: {}, bob: {}, carl: {}}\n"
    "roles: [{role: submitter, users: [ada, bob, carl]}]\n";

std::string Yaml(const std::string& name, const std::string& more = "", int ranks = 1) {
  return "name: " + name + "\nworkdir: /jobs/" + name +
         "\ncommand: [x]\nresources: {nodes: 1, ranks_per_node: " + std::to_string(ranks) + "}\n" +
         more;
}

struct UserShares : public ::testing::Test {
  void Begin(const std::string& queues, int slots) {
    EXPECT_TRUE(c.ApplyQueues(queues, 0).status.ok());
    EXPECT_TRUE(c.ApplyUsers(kUsers).status.ok());
    if (slots > 0) c.Join("n1", {.slots = slots});
  }
  JobId SubmitBy(const std::string& user, const std::string& name, const std::string& more = "") {
    c.SubmitAs(user);
    return c.Submit(Yaml(name, more));
  }
  Status RefusedTo(const std::string& user, const std::string& name, const std::string& more = "") {
    c.SubmitAs(user);
    return c.SubmitRaw(Yaml(name, more)).status;
  }
  void RunFor(const JobId& id, Duration time) {
    c.StartAll(id);
    c.Advance(time);
    c.FinishAll(id);
  }
  bool Waits(const JobId& id) const { return c.Job(id).attempts->empty(); }
  // Ada had 5 hours, then Bob 45 minutes.
  void LetTwoRun() {
    RunFor(SubmitBy("ada", "had"), hours(5));
    RunFor(SubmitBy("bob", "had-too"), minutes(45));
  }
  // Who gets the node next, where Ada submits first.
  std::string Next() {
    const JobId block = SubmitBy("carl", "block");
    c.StartAll(block);
    const JobId of_ada = SubmitBy("ada", "next-a");
    const JobId of_bob = SubmitBy("bob", "next-b");
    c.FinishAll(block);
    EXPECT_NE(Waits(of_ada), Waits(of_bob)) << c.Timeline();
    return Waits(of_ada) ? "bob" : "ada";
  }

  ControlHarness c;
};

TEST_F(UserShares, AUserWhoComesLaterIsNotBehindAllJobsOfAnother) {
  Begin("queues: {default: {}}", 1);
  std::vector<JobId> adas;
  for (int i = 0; i < 10; ++i) adas.push_back(SubmitBy("ada", "a" + std::to_string(i)));
  c.StartAll(adas[0]);
  c.Advance(minutes(10));
  const JobId first = SubmitBy("bob", "b0");
  const JobId second = SubmitBy("bob", "b1");
  c.FinishAll(adas[0]);
  EXPECT_FALSE(Waits(first)) << c.Timeline();
  RunFor(first, minutes(20));
  EXPECT_FALSE(Waits(adas[1])) << "she has had less by now";
  const JobId third = SubmitBy("carl", "c0");
  RunFor(adas[1], minutes(30));
  EXPECT_FALSE(Waits(third));
  RunFor(third, hours(1));
  EXPECT_FALSE(Waits(second));
}

TEST_F(UserShares, WithoutAUserFileOwnersDoNotMatter) {
  c.Join("n1");
  const JobId first = SubmitBy("ada", "a0");
  const JobId second = SubmitBy("ada", "a1");
  const JobId other = SubmitBy("bob", "b0");
  RunFor(first, hours(1));
  EXPECT_FALSE(Waits(second));
  EXPECT_TRUE(Waits(other));
  c.FinishAll(second);
  EXPECT_THAT(c.stored().queue_usage, ElementsAre(Key("default")));
}

TEST_F(UserShares, WhatUsersHadOutlivesARestart) {
  Begin("queues: {default: {}}", 1);
  LetTwoRun();
  c.Restart();
  c.Join("n1");
  EXPECT_EQ(Next(), "bob");
}

TEST_F(UserShares, WhatUsersHadOutlivesAnotherHalfLife) {
  Begin("queues: {default: {}}", 1);
  LetTwoRun();
  const std::map<std::string, double> before = c.stored().queue_usage;
  ASSERT_TRUE(c.ApplyQueues("half_life: 1d\nqueues: {default: {}}", 1).status.ok());
  EXPECT_THAT(c.stored().queue_usage, ElementsAre(Key("default/ada"), Key("default/bob")));
  EXPECT_NE(c.stored().queue_usage, before);
  EXPECT_EQ(Next(), "bob");
}

TEST_F(UserShares, WhatAQueueHadBeforeItHadUsersIsTheQueues) {
  c.ApplyQueues("queues: {default: {}, other: {}}", 0);
  c.Join("n1");
  const JobId before = c.Submit(Yaml("before"));
  RunFor(before, hours(5));
  const JobId runs = c.Submit(Yaml("runs"));
  c.StartAll(runs);
  const JobId waits = c.Submit(Yaml("waits"));
  ASSERT_TRUE(c.ApplyUsers(kUsers).status.ok());
  const JobId of_ada = SubmitBy("ada", "next");
  EXPECT_NEAR(c.controller().Queues().queues[0].usage_share, 1, 1e-9);
  EXPECT_EQ(c.controller().Queues().queues[0].waiting, 2);
  c.Advance(hours(1));
  c.FinishAll(runs);
  EXPECT_FALSE(Waits(of_ada)) << "what no one owns is one share among them";
  EXPECT_TRUE(Waits(waits));
  c.Restart();
  EXPECT_THAT(c.stored().queue_usage, ElementsAre(Key("default"), Key("default/")));
}

TEST_F(UserShares, WhatARemovedUserHadStaysWithTheQueue) {
  Begin("queues: {default: {}, other: {}}", 1);
  LetTwoRun();
  RunFor(SubmitBy("carl", "elsewhere", "queue: other\n"), hours(2));
  const JobId block = SubmitBy("carl", "block", "queue: other\n");
  const JobId of_ada = SubmitBy("ada", "waits");
  const double before = c.controller().Queues().queues[0].usage_share;
  const std::string without = "users: {bob: {}, carl: {}}\nroles: [{role: viewer, users: [bob]}]\n";
  ASSERT_TRUE(c.ApplyUsers(without).status.ok());
  EXPECT_THAT(c.stored().queue_usage, Contains(Key("default/ada"))) << "she has a job there";
  c.Cancel(of_ada);
  ASSERT_TRUE(c.ApplyUsers(without + "# again\n").status.ok());
  EXPECT_THAT(c.stored().queue_usage,
              ElementsAre(Key("default"), Key("default/bob"), Key("other/carl")));
  EXPECT_NEAR(c.controller().Queues().queues[0].usage_share, before, 1e-6);
  ASSERT_TRUE(c.ApplyQueues("queues: {other: {}, default: {}}", 1).status.ok());
  EXPECT_NEAR(c.controller().Queues().queues[1].usage_share, before, 1e-6);
  c.Cancel(block);
}

TEST_F(UserShares, UsageThatHasDecayedToNothingIsDropped) {
  Begin("half_life: 1h\nqueues: {default: {}}", 1);
  RunFor(SubmitBy("ada", "long-ago"), hours(1));
  c.Advance(hours(24));
  RunFor(SubmitBy("bob", "now"), hours(1));
  ASSERT_TRUE(c.ApplyUsers(std::string(kUsers) + "# again\n").status.ok());
  EXPECT_THAT(c.stored().queue_usage, ElementsAre(Key("default"), Key("default/bob")));
}

TEST_F(UserShares, WhoHasAsManyWaitingJobsAsOneUserMayIsRefusedAnother) {
  Begin("queues: {default: {per_user: {queued: 2}}, other: {}}", 0);
  const JobId first = SubmitBy("ada", "a0");
  SubmitBy("ada", "a1", "hold: true\n");
  const Status refused = RefusedTo("ada", "a2");
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "ada has 2 jobs that wait in queue default, and one user may have 2 there\n"
            "  next: submit again when one has started; muster get --owner ada --queue default "
            "lists them");
  SubmitBy("bob", "b0");
  c.submitter = {.kind = Actor::Kind::kAdmin, .name = "root", .as_user = "ada"};
  EXPECT_EQ(c.SubmitRaw(Yaml("a3")).status.code(), StatusCode::kResourceExhausted)
      << "an admin who acts for her has her limit";
  EXPECT_EQ(c.controller().AskWhy(*ParseJobSpec(Yaml("a4")), "ada", c.now()).status().message(),
            refused.message());
  const JobId other = SubmitBy("ada", "elsewhere", "queue: other\n");
  UpdateRequested moves{.job = other.value};
  moves.queue = "default";
  EXPECT_EQ(c.Update(moves).status.code(), StatusCode::kResourceExhausted);
  c.Restart();
  EXPECT_FALSE(RefusedTo("ada", "a5").ok()) << "they are counted again";
  c.Join("n1");
  ASSERT_FALSE(Waits(first));
  const JobId next = SubmitBy("ada", "a6");
  EXPECT_FALSE(RefusedTo("ada", "a7").ok());
  c.Cancel(next);
  EXPECT_TRUE(RefusedTo("ada", "a8").ok());
}

TEST_F(UserShares, ASubmitThatIsRepeatedIsNoOtherJob) {
  Begin("queues: {default: {per_user: {queued: 1}}}", 0);
  c.SubmitAs("ada");
  const JobId job = c.Submit(Yaml("a0"), "key");
  EXPECT_EQ(c.Submit(Yaml("a0"), "key"), job);
}

TEST_F(UserShares, AUserRunsSoManyJobsAndTheNextStartsWhenOneEnds) {
  Begin("queues: {default: {per_user: {running: 2}}}", 8);
  std::vector<JobId> adas;
  for (int i = 0; i < 4; ++i) adas.push_back(SubmitBy("ada", "a" + std::to_string(i)));
  const JobId of_bob = SubmitBy("bob", "b0");
  c.Advance(seconds(1));
  EXPECT_FALSE(Waits(adas[0]) || Waits(adas[1]) || Waits(of_bob)) << c.Timeline();
  EXPECT_TRUE(Waits(adas[2]) && Waits(adas[3]));
  EXPECT_THAT(c.Job(adas[2]).reason(),
              HasSubstr("; ada has 2 of the 2 running jobs that one user may have in queue "
                        "default"));
  const Explanation why = Answer(*c.controller().AskWhy(adas[2], c.now()));
  ASSERT_FALSE(why.causes.empty());
  EXPECT_EQ(why.causes[0].code, WaitCode::kQuota);
  EXPECT_TRUE(why.causes[0].of_user);
  EXPECT_EQ(why.causes[0].user, "ada");
  EXPECT_EQ(why.causes[0].queue, "default");
  EXPECT_EQ(why.causes[0].used.jobs, 2);
  EXPECT_EQ(why.causes[0].ceiling.jobs, 2);
  EXPECT_EQ(why.blockers.size(), 2u) << "her own two";
  for (std::size_t n = 0; n < 2; ++n) {
    c.StartAll(adas[n]);
    c.FinishAll(adas[n]);
    EXPECT_FALSE(Waits(adas[n + 2])) << c.Timeline();
    EXPECT_EQ(Waits(adas[3]), n == 0);
  }
}

TEST_F(UserShares, AUserHasSoManySlotsAndALargerJobIsRefused) {
  Begin("queues: {default: {per_user: {slots: 3}}}", 8);
  c.SubmitAs("ada");
  const Reply large = c.SubmitRaw(Yaml("large", "", 4));
  EXPECT_EQ(large.status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(large.status.message(),
              HasSubstr("the job needs 4 slots, more than the 3 slots that one user may have in "
                        "queue default\n  next: "));
  const JobId two = c.Submit(Yaml("two", "", 2));
  const JobId more = c.Submit(Yaml("more", "", 2));
  const JobId one = c.Submit(Yaml("one"));
  c.Advance(seconds(1));
  EXPECT_FALSE(Waits(two) || Waits(one)) << "it is small enough for what is left";
  EXPECT_THAT(c.Job(more).reason(), HasSubstr("ada has 2 of the 3 slots that one user may have"));
  ASSERT_TRUE(c.ApplyQueues("queues: {default: {per_user: {slots: 5}}}", 1).status.ok());
  EXPECT_FALSE(Waits(more)) << "a change counts at once";
}

TEST_F(UserShares, ExplainNamesAQueueWhereItsOwnerMayHaveMore) {
  Begin("queues: {default: {per_user: {running: 1}}, other: {}}", 8);
  SubmitBy("ada", "runs");
  const JobId waits = SubmitBy("ada", "waits");
  const auto question = c.controller().AskWhy(waits, c.now());
  const Explanation why = Answer(*question);
  const auto change = std::ranges::find(why.changes, ChangeKey::kQueue, &Change::key);
  ASSERT_NE(change, why.changes.end());
  const std::vector<QueueSpec>& queues = question->view->shares.tree().queues;
  EXPECT_EQ(QueueOfShare(queues.at(static_cast<std::size_t>(change->request.queue)).name), "other");
  const auto planned = c.controller().AskWhy(*ParseJobSpec(Yaml("new")), "carl", c.now());
  EXPECT_TRUE(Answer(**planned).placement) << "he has no job yet";
  const auto full = c.controller().AskWhy(*ParseJobSpec(Yaml("new")), "ada", c.now());
  EXPECT_EQ(Answer(**full).causes.at(0).user, "ada");
}

TEST_F(UserShares, LimitsWithoutUsersAreAWarning) {
  const std::string queues = "queues: {default: {per_user: {running: 1}}}";
  const Reply before = c.ApplyQueues(queues, 0);
  EXPECT_THAT(std::get<QueuesAccepted>(before.body).warnings,
              ElementsAre("per_user of queue default has no effect before users are applied"));
  c.Join("n1", {.slots = 4});
  const JobId first = SubmitBy("ada", "a0");
  const JobId second = SubmitBy("ada", "a1");
  EXPECT_FALSE(Waits(first) || Waits(second));
  ASSERT_TRUE(c.ApplyUsers(kUsers).status.ok());
  const Reply after = c.ApplyQueues(queues + "\n", 1);
  EXPECT_THAT(std::get<QueuesAccepted>(after.body).warnings, ElementsAre());
  EXPECT_TRUE(Waits(SubmitBy("ada", "a2"))) << "both run on, and no third one starts";
}

TEST_F(UserShares, DaysAreKeptByUser) {
  Begin("queues: {default: {}}", 2);
  const JobId of_ada = SubmitBy("ada", "a0");
  const JobId of_bob = SubmitBy("bob", "b0");
  c.StartAll(of_ada);
  c.StartAll(of_bob);
  c.Advance(minutes(2));
  c.FinishAll(of_ada);
  c.Advance(minutes(1));
  for (int restart = 0; restart < 2; ++restart) {
    const auto days = c.controller().UsageByDay(c.now());
    ASSERT_EQ(days.size(), 1u);
    const auto& records = days.begin()->second;
    EXPECT_THAT(records, ElementsAre(Key("default/ada"), Key("default/bob")));
    EXPECT_EQ(records.at("default/ada").user, "ada");
    EXPECT_EQ(records.at("default/ada").queue, "default");
    EXPECT_NEAR(static_cast<double>(records.at("default/ada").slots.productive), 120e6, 1e6);
    EXPECT_NEAR(static_cast<double>(records.at("default/bob").slots.productive), 180e6, 1e6);
    EXPECT_THAT(c.controller().UsageTotals(c.now()), ElementsAre(Key("default")));
    c.Restart();
  }
}

}  // namespace
}  // namespace muster
