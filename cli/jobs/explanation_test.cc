#include "cli/jobs/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kNoon = 1'795'780'800'000;  // 2026-11-27 12:00:00 UTC

v1::ExplainJobResponse WideJob() {
  v1::ExplainJobResponse answer;
  v1::Job& job = *answer.mutable_job();
  job.set_id("7f3a9c1e2b");
  job.set_name("wide");
  job.set_state(v1::JOB_STATE_QUEUED);
  answer.set_waits(true);
  answer.set_index(42);
  answer.set_promised_unix_ms(kNoon);
  answer.set_nodes_needed(4);
  answer.set_nodes_ready(3);
  answer.set_nodes_with_room(1);
  v1::WaitCause& occupied = *answer.add_causes();
  occupied.set_code("occupied");
  occupied.set_nodes(1);
  occupied.set_lack("slots");
  v1::WaitCause& quota = *answer.add_causes();
  quota.set_code("quota");
  quota.set_queue("vision");
  quota.mutable_used()->set_gpus(30);
  quota.mutable_wanted()->set_gpus(8);
  quota.mutable_ceiling()->set_gpus(32);
  v1::WaitCause& limit = *answer.add_causes();
  limit.set_code("time_limit");
  limit.set_nodes(2);
  limit.set_job("1");
  limit.set_job_name("first");
  limit.set_at_unix_ms(kNoon);
  v1::WaitCause& health = *answer.add_causes();
  health.set_code("health");
  health.set_nodes(2);
  health.set_state("drained");
  health.add_names("n3");
  health.add_names("n4");
  v1::WaitCause& elsewhere = *answer.add_causes();
  elsewhere.set_code("elsewhere");
  elsewhere.set_nodes(1);
  elsewhere.add_names("n5");
  elsewhere.set_text("GPU-1 in use elsewhere on this machine, by job 7");
  v1::Blocker& blocker = *answer.add_blockers();
  blocker.set_job("2");
  blocker.set_name("second");
  blocker.set_nodes(1);
  blocker.set_at_unix_ms(kNoon);
  blocker.set_predicted(true);
  v1::AdmittingChange& shorter = *answer.add_changes();
  shorter.set_key("time_limit");
  shorter.set_from(3 * 3600);
  shorter.set_value(1589);
  v1::AdmittingChange& higher = *answer.add_changes();
  higher.set_key("class");
  higher.add_names("urgent");
  v1::PromiseDelay& delay = *higher.add_delays();
  delay.set_job("1");
  delay.set_name("first");
  delay.set_promised_unix_ms(kNoon);
  delay.set_later_unix_ms(kNoon + 3'600'000);
  delay.set_cause("class");
  v1::AdmittingChange& labels = *answer.add_changes();
  labels.set_key("labels");
  labels.add_names("pool in (a)");
  answer.add_pilots("p-1");
  return answer;
}

// As `wide`, with one key that makes others give way to it.
v1::ExplainJobResponse JobThatWouldReclaim() {
  v1::ExplainJobResponse answer;
  answer.set_waits(true);
  answer.set_nodes_needed(1);
  answer.set_nodes_ready(2);
  v1::AdmittingChange& queue = *answer.add_changes();
  queue.set_key("queue");
  queue.add_names("vision");
  queue.set_start_unix_ms(kNoon);
  v1::Victim& whole = *queue.add_victims();
  whole.set_job("1");
  whole.set_name("base");
  whole.set_cost(113.6);
  whole.set_cause("guarantee");
  v1::Victim& shrinks = *queue.add_victims();
  shrinks.set_job("2");
  shrinks.set_nodes(1);
  shrinks.set_cost(60);
  shrinks.set_cause("class");
  return answer;
}

TEST(ExplanationText, ChangesThatMakeOthersGiveWayAreApartWithTheirVictims) {
  v1::ExplainJobResponse answer = JobThatWouldReclaim();
  const std::string reclaiming =
      "\nOthers would give way to it with one of\n"
      "  queue: vision\n"
      "    job 1 (base) would give way to it, at a cost of 114 rank-seconds\n"
      "    job 2 would give way to it with 1 node, at a cost of 60 rank-seconds\n"
      "    starts at 2026-11-27 12:00:00 UTC at the latest\n";
  EXPECT_THAT(ExplanationText(answer),
              HasSubstr("\nNo change of a single key would start it now\n" + reclaiming));
  answer.add_changes()->set_key("topology");
  answer.mutable_changes(1)->add_names("rack");
  EXPECT_THAT(ExplanationText(answer),
              HasSubstr("\nIt would start now with one of\n"
                        "  resources.topology.required: false, now in one rack\n" +
                        reclaiming));
}

TEST(ExplanationJson, AChangeHasItsVictimsAndTheStartBehindThem) {
  const Json change = ExplanationJson(JobThatWouldReclaim())["changes"][0];
  EXPECT_EQ(change["start_at"], "2026-11-27T12:00:00.000Z");
  EXPECT_EQ(change["victims"][0]["job"], "1");
  EXPECT_EQ(change["victims"][0]["nodes"], nullptr);
  EXPECT_EQ(change["victims"][0]["cause"], "guarantee");
  EXPECT_EQ(change["victims"][1]["nodes"], 1);
  const Json at_once = ExplanationJson(WideJob())["changes"][0];
  EXPECT_EQ(at_once["start_at"], nullptr);
  EXPECT_TRUE(at_once["victims"].empty());
}

TEST(ExplanationText, SaysReasonsJobsBeforeItAndChangesWithTheirCost) {
  EXPECT_EQ(
      ExplanationText(WideJob()),
      "Job 7f3a9c1e2b  wide  queued\n"
      "  starts at 2026-11-27 12:00:00 UTC at the latest\n"
      "\n"
      "Why it waits\n"
      "  it needs 4 nodes; of 3 ready nodes 1 has room now\n"
      "  1 node has too few free slots\n"
      "  queue vision has 30 GPUs of 32 that its ceiling allows, and 8 GPUs more would exceed it\n"
      "  2 nodes have room until job 1 (first) starts at 2026-11-27 12:00:00 UTC, which the time "
      "limit reaches beyond\n"
      "  2 nodes that could hold a part of it are drained: n3, n4\n"
      "  n5: GPU-1 in use elsewhere on this machine, by job 7\n"
      "\n"
      "Jobs before it\n"
      "  job 2 (second): has 1 node until 2026-11-27 12:00:00 UTC, predicted by its steps, which "
      "is "
      "no promise\n"
      "\n"
      "Pilot jobs that were requested for it\n"
      "  p-1\n"
      "\n"
      "It would start now with one of\n"
      "  resources.time_limit: 26m29s, now 3h\n"
      "  class: urgent\n"
      "    delays job 1 (first): from 2026-11-27 12:00:00 UTC to 2026-11-27 13:00:00 UTC\n"
      "  resources.labels: without pool in (a)\n");
}

TEST(ExplanationText, NamesGangsThatGiveWayOrWould) {
  v1::ExplainJobResponse answer = WideJob();
  v1::WaitCause& reclaim = *answer.add_causes();
  reclaim.set_code("reclaim");
  reclaim.set_job("3");
  reclaim.set_job_name("base");
  reclaim.set_text("114 rank-seconds");
  EXPECT_THAT(ExplanationText(answer),
              HasSubstr("\n  job 3 (base) would give way to it, at a cost of 114 rank-seconds\n"));
  reclaim.set_nodes(1);
  reclaim.set_at_unix_ms(kNoon);
  EXPECT_THAT(ExplanationText(answer), HasSubstr("\n  job 3 (base) gives way to it with 1 node, at "
                                                 "a cost of 114 rank-seconds, and has stopped at "
                                                 "2026-11-27 12:00:00 UTC at the latest\n"));
}

TEST(ExplanationText, NamesALentSpareThatARecoveryWaitsFor) {
  v1::ExplainJobResponse answer;
  answer.set_waits(true);
  answer.set_nodes_needed(2);
  answer.set_nodes_ready(2);
  v1::WaitCause& lent = *answer.add_causes();
  lent.set_code("lent");
  lent.set_nodes(1);
  lent.add_names("n3");
  lent.set_job("3");
  lent.set_job_name("filler");
  EXPECT_THAT(ExplanationText(answer), HasSubstr("\n  starts as soon as it has its spare back\n"));
  EXPECT_THAT(
      ExplanationText(answer),
      HasSubstr("\n  its shared spare n3 is lent to job 3 (filler), and is given back now\n"));
}

TEST(ExplanationText, SaysWhatIsKnownOfTheStart) {
  v1::ExplainJobResponse answer = WideJob();
  answer.clear_promised_unix_ms();
  EXPECT_THAT(ExplanationText(answer), HasSubstr("the nodes that are ready now cannot hold it"));
  answer.set_nodes_ready(4);
  EXPECT_THAT(ExplanationText(answer), HasSubstr("no end of what it waits for is known"));
  answer.set_behind_planned(true);
  EXPECT_THAT(ExplanationText(answer), HasSubstr("behind the jobs whose starts are planned"));
  answer.add_collects("n1");
  EXPECT_THAT(ExplanationText(answer), HasSubstr("collects what becomes free on n1"));
  answer.clear_changes();
  EXPECT_THAT(ExplanationText(answer), HasSubstr("No change of a single key"));
}

TEST(ExplanationText, IsTheStateOfAJobThatDoesNotWait) {
  v1::ExplainJobResponse answer;
  v1::Job& job = *answer.mutable_job();
  job.set_id("1");
  job.set_name("first");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_started_unix_ms(kNoon);
  EXPECT_EQ(ExplanationText(answer),
            "Job 1  first  running\n  has run since 2026-11-27 12:00:00 UTC\n");
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_reason("rank 1 ended with exit code 3");
  EXPECT_EQ(ExplanationText(answer), "Job 1  first  failed\n  rank 1 ended with exit code 3\n");
}

TEST(ExplanationText, SaysWhereAJobFileWouldStartOrWhyNot) {
  v1::ExplainJobResponse answer;
  answer.set_waits(true);
  answer.set_starts_now(true);
  answer.add_nodes("n1");
  answer.add_nodes("n2");
  EXPECT_EQ(PlacementText(answer), "would start now on n1, n2\n");
  answer = WideJob();
  EXPECT_THAT(PlacementText(answer),
              HasSubstr("would wait; starts at 2026-11-27 12:00:00 UTC at the latest\n"));
  answer.set_waits(false);
  EXPECT_THAT(PlacementText(answer), HasSubstr("would not be placed now\n"));
}

TEST(ExplanationText, SaysWhatOneUserHasOfWhatEachMayHave) {
  v1::ExplainJobResponse answer = WideJob();
  v1::WaitCause& quota = *answer.mutable_causes(1);
  quota.set_of_user(true);
  quota.set_user("ada");
  EXPECT_THAT(ExplanationText(answer),
              HasSubstr("\n  ada has 30 of the 32 GPUs that one user may have in queue vision\n"));
  quota.mutable_ceiling()->clear_gpus();
  quota.mutable_ceiling()->set_slots(1);
  quota.mutable_used()->set_slots(1);
  quota.mutable_wanted()->set_slots(8);
  EXPECT_THAT(ExplanationText(answer),
              HasSubstr("\n  ada has 1 of the 1 slot that one user may have in queue vision\n"));
  quota.mutable_ceiling()->clear_slots();
  quota.mutable_ceiling()->set_jobs(2);
  quota.mutable_used()->set_jobs(2);
  EXPECT_THAT(ExplanationText(answer), HasSubstr("\n  ada has 2 of the 2 running jobs that one "
                                                 "user may have in queue vision\n"));
  const Json json = ExplanationJson(answer)["causes"][1];
  EXPECT_EQ(json["user"], "ada");
  EXPECT_EQ(json["used"]["running"], 2);
  EXPECT_EQ(json["ceiling"]["running"], 2);
  quota.clear_user();
  EXPECT_THAT(ExplanationText(answer), HasSubstr("\n  its owner has 2 of the 2 running jobs"));
}

TEST(ExplanationJson, HasNumbersAsNumbersAndStableCodes) {
  const Json json = ExplanationJson(WideJob());
  EXPECT_EQ(json["start"], "promised");
  EXPECT_EQ(json["start_at"], "2026-11-27T12:00:00.000Z");
  EXPECT_EQ(json["index"], 42);
  EXPECT_EQ(json["causes"][0], (Json{{"code", "occupied"}, {"nodes", 1}, {"lack", "slots"}}));
  EXPECT_EQ(json["causes"][1]["ceiling"], (Json{{"gpus", 32}, {"slots", nullptr}}));
  EXPECT_EQ(json["blockers"][0]["predicted"], true);
  EXPECT_EQ(json["changes"][0]["value"], 1589);
  EXPECT_EQ(json["changes"][1]["value"], "urgent");
  EXPECT_EQ(json["changes"][1]["delays"][0]["cause"], "class");
  EXPECT_EQ(json["changes"][2]["without"], (Json{"pool in (a)"}));
  EXPECT_EQ(json["pilots"], (Json{"p-1"}));
}

}  // namespace
}  // namespace muster
