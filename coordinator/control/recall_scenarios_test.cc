// Archived jobs come back into memory while their checkpoints are read again, and only then.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/job_spec/parse.h"
#include "coordinator/control/testing/control_harness.h"

namespace muster {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

ControllerOptions EveryHour() {
  ControllerOptions options;
  options.retain = minutes(1);
  options.scrub_interval = hours(1);
  return options;
}

// Two nodes. Jobs with checkpoints of steps 10 and 20 that have succeeded are archived.
struct ScrubbedArchive : ControlHarness {
  explicit ScrubbedArchive(ControllerOptions options = EveryHour())
      : ControlHarness(std::move(options)) {
    Join("n1");
    Join("n2");
  }
  void AddArchived(const JobId& job, const std::string& yaml = TrainYaml()) {
    Finish(job, yaml);
    Advance(minutes(2));
    ASSERT_EQ(controller().FindArchived(job.value), job) << Timeline();
    Forget();
    recalls.clear();
  }
  void Finish(const JobId& job, const std::string& yaml = TrainYaml()) {
    Handle(SubmitRequested{
        .request = 1, .spec_yaml = yaml, .new_id = job, .spec = ParseJobSpec(yaml)});
    RunTo(job, 12);
    for (Step step : {10, 20}) {
      Checkpoint(job, step);
      Manifest(job, Directory(job, step));
      Advance(seconds(1));
    }
    FinishAll(job);
    for (const char* node : {"n1", "n2"}) Deliver(node, Released{job});
    Forget();
  }
  // The orders that the node has received since.
  std::vector<ScrubCheckpoint> Orders(const std::string& node) {
    return Take<ScrubCheckpoint>(node);
  }
  // The next scrub, which must be there, has this result.
  void Scrub(const std::string& node, ScrubOutcome outcome, const std::string& detail = "") {
    const std::vector<ScrubCheckpoint> orders = Orders(node);
    ASSERT_EQ(orders.size(), 1u) << Timeline();
    AnswerPart(node, orders.front(), outcome, detail);
  }
  // A round in which both checkpoints are read whole.
  void ScrubBoth() {
    for (int n = 0; n < 2; ++n) Scrub("n1", ScrubOutcome::kWhole);
  }
  void Rejoin() {
    Restart();
    Join("n1");
    Join("n2");
  }
  const CheckpointRecord& Stored(std::size_t n) const {
    return StoredArchive(id).checkpoints.at(n);
  }

  // In the first half of a round; the clock of the day is there at the begin.
  const JobId id{"40000000aa"};
  static constexpr char kTen[] = "step-00000010-g1";
};

TEST(RecallScenarios, ACheckpointOfAnArchivedJobIsReadAgainOnceInAnInterval) {
  ScrubbedArchive h;
  h.AddArchived(h.id);
  h.Advance(hours(1));
  const std::int64_t before = h.Stored(0).verified_unix_ms;
  h.observations.clear();
  const std::vector<ScrubCheckpoint> first = h.Orders("n1");
  ASSERT_EQ(first.size(), 1u) << h.Timeline();
  EXPECT_EQ(first[0].job, h.id);
  EXPECT_EQ(first[0].checkpoint.directory, ScrubbedArchive::kTen);
  EXPECT_EQ(first[0].output_dir, "/jobs/out-tiny");
  EXPECT_GT(first[0].max_bytes_per_second, 0u);
  EXPECT_THAT(h.controller().Jobs(), IsEmpty()) << "it stays archived";
  h.AnswerPart("n1", first[0], ScrubOutcome::kWhole);
  EXPECT_GT(h.Stored(0).verified_unix_ms, before);
  h.Scrub("n1", ScrubOutcome::kWhole);
  EXPECT_EQ(h.Stored(1).verified_unix_ms, h.now().unix_ms);
  EXPECT_THAT(h.observations, SizeIs(2));
  EXPECT_EQ(std::get<ScrubObserved>(h.observations[0]).outcome, ScrubOutcome::kWhole);
  h.recalls.clear();
  h.Advance(minutes(10));
  EXPECT_THAT(h.Orders("n1"), IsEmpty());
  h.Advance(minutes(50));
  EXPECT_THAT(h.recalls, ElementsAre(h.id));
  h.ScrubBoth();
}

TEST(RecallScenarios, AJobThatIsBeingReadIsArchivedSoonAfter) {
  ControllerOptions options = EveryHour();
  options.retain = hours(1);
  ScrubbedArchive h(options);
  h.Finish(h.id);
  h.Advance(hours(1));
  ASSERT_TRUE(h.controller().FindJob(h.id.value).ok());
  h.ScrubBoth();
  h.Advance(minutes(1));
  EXPECT_EQ(h.controller().FindArchived(h.id.value), h.id);
}

TEST(RecallScenarios, DamageInTheArchiveIsReportedAndKept) {
  ScrubbedArchive h;
  h.AddArchived(h.id);
  h.Advance(hours(1));
  h.Scrub("n1", ScrubOutcome::kDamaged, "rank-00001.shard is damaged in bytes 0 to 4095");
  EXPECT_THAT(h.Stored(0).refused, HasSubstr("n1: rank-00001.shard is damaged"));
  EXPECT_EQ(h.StoredArchive(h.id).job.committed_step, 20);
  EXPECT_TRUE(h.HasEvent(h.id, "checkpoint_damaged", ScrubbedArchive::kTen));
  h.Scrub("n1", ScrubOutcome::kDamaged, "too");
  EXPECT_EQ(h.StoredArchive(h.id).job.committed_step, 0);
  h.Advance(hours(3));
  EXPECT_THAT(h.Orders("n1"), IsEmpty()) << "no usable one is left";
}

TEST(RecallScenarios, AnArchiveThatNoNodeReachesIsReportedOnceUntilItIsReachedAgain) {
  ScrubbedArchive h;
  h.AddArchived(h.id);
  for (int round = 0; round < 2; ++round) {
    h.Advance(hours(1));
    for (int checkpoint = 0; checkpoint < 2; ++checkpoint) {
      h.Scrub("n1", ScrubOutcome::kUnreachable, "no mount");
      h.Scrub("n2", ScrubOutcome::kUnreachable, "no mount");
    }
    EXPECT_EQ(h.CountEvents(h.id, "checkpoints_unreachable"), 1);
    EXPECT_THAT(h.StoredArchive(h.id).job.scrub_trouble, HasSubstr("no mount"));
  }
  h.Advance(hours(1));
  h.Scrub("n1", ScrubOutcome::kWhole);
  EXPECT_EQ(h.CountEvents(h.id, "checkpoints_reachable"), 0) << "one of two";
  h.Scrub("n1", ScrubOutcome::kWhole);
  EXPECT_EQ(h.CountEvents(h.id, "checkpoints_reachable"), 1);
  EXPECT_EQ(h.StoredArchive(h.id).job.scrub_trouble, "");
}

TEST(RecallScenarios, ACrashLosesTheOrderAndNothingElse) {
  ScrubbedArchive h;
  h.AddArchived(h.id);
  h.Advance(hours(1));
  const std::vector<ScrubCheckpoint> lost = h.Orders("n1");
  ASSERT_EQ(lost.size(), 1u);
  h.Rejoin();
  h.AnswerPart("n1", lost[0], ScrubOutcome::kDamaged, "of an order that is lost");
  EXPECT_EQ(h.CountEvents(h.id, "checkpoint_damaged"), 0);
  h.Advance(hours(1));
  h.ScrubBoth();
}

TEST(RecallScenarios, ACrashBeforeTheStoreAnswersLosesNothing) {
  ScrubbedArchive h;
  h.AddArchived(h.id);
  h.answers_recalls = false;
  h.Advance(hours(1));
  ASSERT_THAT(h.recalls, ElementsAre(h.id));
  h.Rejoin();
  h.AnswerRecall(h.id);
  EXPECT_THAT(h.Orders("n1"), IsEmpty()) << "an earlier coordinator asked";
  h.answers_recalls = true;
  h.Advance(hours(1));
  h.ScrubBoth();
}

TEST(RecallScenarios, RestartsMoreOftenThanTheIntervalDelayNothing) {
  ScrubbedArchive h;
  h.AddArchived(h.id);
  for (int restart = 0; restart < 4; ++restart) {
    h.Rejoin();
    h.Advance(minutes(15));
    if (!h.recalls.empty()) break;
  }
  h.ScrubBoth();
}

TEST(RecallScenarios, TurnsAreSpreadOverTheInterval) {
  ScrubbedArchive h;
  const JobId late{"c0000000aa"};
  h.AddArchived(h.id);
  h.AddArchived(late, TrainYaml("late"));
  h.recalls.clear();
  std::map<JobId, std::int64_t> turns;  // in minutes of the round
  for (int minute = 0; minute < 60; ++minute) {
    h.Advance(minutes(1));
    for (const JobId& id : h.recalls) turns[id] = h.now().unix_ms / 60'000 % 60;
    h.recalls.clear();
  }
  EXPECT_THAT(turns, ElementsAre(Pair(h.id, 15), Pair(late, 45)));
}

TEST(RecallScenarios, AClockThatIsSetBackDelaysNothing) {
  ScrubbedArchive h;
  h.AddArchived(h.id);
  h.SetWallClock(-hours(100));
  h.Advance(hours(1));
  h.ScrubBoth();
}

TEST(RecallScenarios, OnlyJobsThatHaveSucceededAreRecalled) {
  ScrubbedArchive h;
  const JobId cancelled = h.Submit(TrainYaml());
  h.RunTo(cancelled, 12);
  h.Checkpoint(cancelled, 10);
  h.Cancel(cancelled);
  h.QuiesceAll(cancelled);
  for (const char* node : {"n1", "n2"}) h.Deliver(node, Released{cancelled});
  h.Advance(minutes(2));
  ASSERT_EQ(h.controller().FindArchived(cancelled.value), cancelled);
  h.Advance(hours(3));
  EXPECT_THAT(h.recalls, IsEmpty());
}

TEST(RecallScenarios, ADirectoryThatANewerArchivedJobWroteIsTheNewerOnes) {
  ScrubbedArchive h;
  h.AddArchived(h.id);
  const JobId newer{"c0000000aa"};
  h.AddArchived(newer);
  h.Advance(minutes(90));
  for (int n = 0; n < 2; ++n) {
    const std::vector<ScrubCheckpoint> orders = h.Orders("n1");
    ASSERT_EQ(orders.size(), 1u) << h.Timeline();
    EXPECT_EQ(orders[0].job, newer);
    h.AnswerPart("n1", orders[0], ScrubOutcome::kWhole);
  }
  EXPECT_THAT(h.Orders("n1"), IsEmpty());
}

TEST(RecallScenarios, ANewerJobTakesTheDirectoryWhileItIsRead) {
  ScrubbedArchive h;
  h.AddArchived(h.id);
  h.Advance(hours(1));
  h.Submit(TrainYaml());
  h.Scrub("n1", ScrubOutcome::kWhole);
  EXPECT_THAT(h.Orders("n1"), IsEmpty()) << "the second one is not read any more";
}

TEST(RecallScenarios, AnIntervalOfZeroRecallsNothing) {
  ControllerOptions options = EveryHour();
  options.scrub_interval = Duration::zero();
  ScrubbedArchive h(options);
  h.AddArchived(h.id);
  h.Advance(hours(3));
  EXPECT_THAT(h.recalls, IsEmpty());
}

TEST(RecallScenarios, AFewJobsAreRecalledAtATime) {
  ControllerOptions options = EveryHour();
  ScrubbedArchive h(options);
  for (const char* id : {"40000000aa", "40000000ab", "40000000ac"})
    h.AddArchived(JobId{id}, TrainYaml(id));
  h.answers_recalls = false;
  h.Advance(hours(2));
  EXPECT_THAT(h.recalls, SizeIs(2));
  h.AnswerRecall(h.recalls[0]);
  h.AnswerRecall(h.recalls[1]);
  EXPECT_THAT(h.recalls, SizeIs(2)) << "both are being read";
  for (int n = 0; n < 2; ++n) h.Scrub("n1", ScrubOutcome::kWhole);
  h.Advance(seconds(1));
  EXPECT_THAT(h.recalls, SizeIs(3));
}

TEST(RecallScenarios, AJobThatIsDeletedWhileItIsReadIsReadToItsEnd) {
  ControllerOptions options = EveryHour();
  options.archive_retain = minutes(63);
  ScrubbedArchive h(options);
  h.AddArchived(h.id);
  h.Advance(minutes(60));
  const std::vector<ScrubCheckpoint> orders = h.Orders("n1");
  ASSERT_EQ(orders.size(), 1u) << h.Timeline();
  ASSERT_EQ(h.controller().FindArchived(h.id.value), h.id);
  h.Advance(minutes(3));
  ASSERT_EQ(h.controller().FindArchived(h.id.value), JobId{});
  h.AnswerPart("n1", orders[0], ScrubOutcome::kDamaged, "bits");
  EXPECT_TRUE(h.HasEvent(h.id, "checkpoint_damaged"));
  h.Scrub("n1", ScrubOutcome::kWhole);
  EXPECT_THAT(h.stored().archived, IsEmpty());
}

// --- requests ---

constexpr RequestId kRequest = 900;

TEST(RecallScenarios, AClientHasAnArchivedJobReadAgainAtOnce) {
  ControllerOptions options = EveryHour();
  options.scrub_interval = Duration::zero();
  ScrubbedArchive h(options);
  h.AddArchived(h.id);
  h.Handle(VerifyRequested{.request = kRequest, .job = h.id.value});
  h.Scrub("n1", ScrubOutcome::kWhole);
  EXPECT_NE(h.LastReply().request, kRequest);
  h.Scrub("n1", ScrubOutcome::kDamaged, "bits");
  ASSERT_EQ(h.LastReply().request, kRequest);
  const auto& verified = std::get<CheckpointsVerified>(h.LastReply().body);
  EXPECT_EQ(verified.whole, 1);
  EXPECT_THAT(verified.damaged, ElementsAre("step-00000020-g1"));
  EXPECT_THAT(h.Stored(1).refused, HasSubstr("bits"));
}

TEST(RecallScenarios, ARequestIsInTheAuditTrail) {
  ScrubbedArchive h;
  const auto last_line = [&h] {
    for (const StoreOperation& operation : h.last().store)
      if (const auto* audit = std::get_if<AppendAudit>(&operation)) return audit->line;
    return std::string();
  };
  VerifyRequested request{
      .request = kRequest, .actor = {.kind = Actor::Kind::kUser, .name = "ada"}, .job = "never"};
  h.Handle(request);
  EXPECT_THAT(last_line(), AllOf(HasSubstr("VerifyCheckpoints"), HasSubstr("user/ada"),
                                 HasSubstr("job never"), HasSubstr("NOT_FOUND")));
  h.AddArchived(h.id);
  h.answers_recalls = false;
  request.job = h.id.value;
  h.Handle(request);
  EXPECT_THAT(last_line(), AllOf(HasSubstr("VerifyCheckpoints"), HasSubstr("user/ada"),
                                 HasSubstr("job " + h.id.value), HasSubstr("\"OK\"")));
}

TEST(RecallScenarios, TwoClientsShareAReading) {
  ScrubbedArchive h;
  h.AddArchived(h.id);
  h.answers_recalls = false;
  h.Handle(VerifyRequested{.request = kRequest, .job = h.id.value});
  h.Handle(VerifyRequested{.request = kRequest + 1, .job = h.id.value});
  EXPECT_THAT(h.recalls, SizeIs(1));
  h.AnswerRecall(h.id);
  h.Handle(VerifyRequested{.request = kRequest + 2, .job = h.id.value});
  h.Handle(CallerGone{kRequest + 1});
  h.ScrubBoth();
  std::vector<RequestId> answered;
  for (const Reply& reply : h.last().replies) {
    EXPECT_TRUE(reply.status.ok()) << reply.status.ToString();
    answered.push_back(reply.request);
  }
  EXPECT_THAT(answered, ElementsAre(kRequest, kRequest + 2));
}

TEST(RecallScenarios, ACallerThatGoesBeforeTheStoreAnswersIsForgotten) {
  ScrubbedArchive h;
  h.AddArchived(h.id);
  h.answers_recalls = false;
  h.Handle(VerifyRequested{.request = kRequest, .job = h.id.value});
  h.Handle(CallerGone{kRequest});
  h.AnswerRecall(h.id);
  EXPECT_THAT(h.Orders("n1"), IsEmpty()) << "it was read a few minutes ago";
  EXPECT_THAT(h.last().replies, IsEmpty());
}

TEST(RecallScenarios, ARequestForAJobThatIsDeletedMeanwhileIsRefused) {
  ControllerOptions options = EveryHour();
  options.archive_retain = minutes(5);
  ScrubbedArchive h(options);
  h.AddArchived(h.id);
  h.answers_recalls = false;
  h.Handle(VerifyRequested{.request = kRequest, .job = h.id.value});
  h.Advance(minutes(10));
  ASSERT_EQ(h.controller().FindArchived(h.id.value), JobId{});
  h.AnswerRecall(h.id);
  ASSERT_EQ(h.LastReply().request, kRequest);
  EXPECT_EQ(h.LastReply().status.code(), StatusCode::kNotFound);
}

TEST(RecallScenarios, WithoutANodeARequestIsRefusedAndTheJobLeavesMemory) {
  ScrubbedArchive h;
  h.AddArchived(h.id);
  h.Leave("n1");
  h.Leave("n2");
  h.Handle(VerifyRequested{.request = kRequest, .job = h.id.value});
  ASSERT_EQ(h.LastReply().request, kRequest);
  EXPECT_THAT(h.LastReply().status.message(), HasSubstr("no connected node can read"));
}

}  // namespace
}  // namespace muster
