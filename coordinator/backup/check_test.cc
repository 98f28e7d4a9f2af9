#include "coordinator/backup/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "coordinator/backup/testing/every_record.h"
#include "coordinator/store/journal_format.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

std::vector<Violation> CheckOf(const std::vector<StoreOperation>& operations,
                               const std::string& more = "") {
  StoreContents contents;
  for (const StoreOperation& each : operations) AppendOperation(each, &contents.payload);
  contents.payload += more;
  const auto violations = CheckContents(contents);
  EXPECT_TRUE(violations.ok()) << violations.status().ToString();
  return violations.ok() ? *violations : std::vector<Violation>{};
}

TEST(CheckTest, RecordsThatFitViolateNothing) {
  EXPECT_EQ(CheckOf(EveryRecord().operations), std::vector<Violation>{});
  EXPECT_EQ(CheckOf({}), std::vector<Violation>{});
}

struct Planted {
  const char* table;
  const char* key;
  const char* what;
  std::function<void(EveryRecordForTest&)> plant;
};

template <typename Operation>
std::function<void(EveryRecordForTest&)> Without(std::size_t skipped = 0) {
  return [skipped](EveryRecordForTest& every) {
    const Operation* found = &every.Get<Operation>(skipped);
    std::erase_if(every.operations, [found](const StoreOperation& each) {
      return std::get_if<Operation>(&each) == found;
    });
  };
}

JobRecord& Running(EveryRecordForTest& every) { return every.Get<PutJob>(2).job; }
JobRecord& Queued(EveryRecordForTest& every) { return every.Get<PutJob>(1).job; }
AttemptRecord& Live(EveryRecordForTest& every) { return every.Get<PutAttempt>(2).attempt; }
CheckpointRecord& Newest(EveryRecordForTest& every) {
  return every.Get<PutCheckpoint>(1).checkpoint;
}

const Planted kPlanted[] = {
    {"attempts", "r/1", "no such job", Without<PutJob>(2)},
    {"checkpoints", "r/step-9", "no such job", Without<PutJob>(2)},
    {"jobs", "r", "newest attempt, 2, is not there", Without<PutAttempt>(2)},
    {"jobs", "r", "running without an attempt that lives", Without<PutAttempt>(2)},
    {"attempts", "r/2", "its job has generation 1", [](auto& e) { Running(e).generation = 1; }},
    {"attempts", "r/1", "it lives, though attempt 2 is newer",
     [](auto& e) {
       AttemptRecord& first = e.template Get<PutAttempt>(1).attempt;
       first.state = AttemptState::kRunning;
       first.ended_unix_ms = 0;
     }},
    {"attempts", "r/2", "it lives, and has an end", [](auto& e) { Live(e).ended_unix_ms = 4; }},
    {"attempts", "r/1", "it has ended at no time",
     [](auto& e) { e.template Get<PutAttempt>(1).attempt.ended_unix_ms = 0; }},
    {"jobs", "r", "it is queued, and attempt 2 lives",
     [](auto& e) { Running(e).state = JobState::kQueued; }},
    {"jobs", "r", "it is failed, and has no end",
     [](auto& e) { Running(e).state = JobState::kFailed; }},
    {"jobs", "q", "and has ended", [](auto& e) { Queued(e).ended_unix_ms = 1; }},
    {"jobs", "r", "2 ranks, and its attempt has 1", [](auto& e) { Running(e).world_size = 2; }},
    {"jobs", "q", "job file is not accepted", [](auto& e) { Queued(e).spec_yaml = "name: ["; }},
    {"jobs", "q", "no queue 'gone'", [](auto& e) { Queued(e).queue = "gone"; }},
    {"jobs", "r", "job q has the same submit_order, 3",
     [](auto& e) { Running(e).submit_order = 3; }},
    {"jobs", "r", "job q has the same key", [](auto& e) { Running(e).key = "key q"; }},
    {"jobs_archive", "a", "job q has the same submit_order",
     [](auto& e) {
       JobRecord& job = e.template Get<PutJob>().job;
       job.submit_order = 3;
       e.template Get<ArchiveJob>().job = ArchivedJobOf(job);
     }},
    {"jobs_archive", "a", "columns that a start reads",
     [](auto& e) { e.template Get<ArchiveJob>().job.submit_order = 8; }},
    {"jobs_archive", "a", "it is stopping, and archived",
     [](auto& e) { e.template Get<PutJob>().job.state = JobState::kStopping; }},
    {"jobs_archive", "a", "an attempt lives",
     [](auto& e) { e.template Get<PutAttempt>().attempt.state = AttemptState::kRunning; }},
    {"jobs_archive", "a", "there is no record of it", Without<PutJob>(0)},
    {"attempts_archive", "a/1", "its job has generation 0",
     [](auto& e) { e.template Get<PutJob>().job.generation = 0; }},
    {"jobs", "a", "it is archived as well",
     [](auto& e) { e.operations.push_back(e.template Get<PutJob>()); }},
    {"attempts", "r/2", "rank 0 is on none of its nodes",
     [](auto& e) { Live(e).ranks[0].node = NodeName{"n2"}; }},
    {"attempts", "r/2", "node n 1 is not known", Without<PutNode>()},
    {"attempts", "r/2", "lent to it, and none of its own",
     [](auto& e) { Live(e).lent = {NodeName{"n2"}}; }},
    {"attempts", "r/2", "devices of other nodes", [](auto& e) { Live(e).node_devices.resize(2); }},
    {"attempts", "s/1", "job r has device gpu-r of node n 1 as well",
     [](auto& e) {
       JobRecord job = JobForTest("s", 4, JobState::kRunning);
       job.generation = 1;
       AttemptRecord attempt = AttemptForTest("s", 1, AttemptState::kRunning);
       attempt.node_devices = {{"gpu-r"}};
       e.operations.push_back(PutJob{job});
       e.operations.push_back(PutAttempt{attempt});
     }},
    {"checkpoints", "r/step-9", "no attempt 7", [](auto& e) { Newest(e).generation = 7; }},
    {"checkpoints", "r/step-9", "it is writing, and not committed",
     [](auto& e) { Newest(e).state = CheckpointState::kWriting; }},
    {"checkpoints", "r/step-9", "shards of 1 ranks instead of 2",
     [](auto& e) { Newest(e).world_size = 2; }},
    {"checkpoints", "r/../x", "not below", [](auto& e) { Newest(e).directory = "../x"; }},
    {"events", "8", "it is missing", Without<AppendEvent>(1)},
    {"audit", "3", "", Without<AppendAudit>(1)},
    {"audit", "2", "", [](auto& e) { e.template Get<AppendAudit>(1).line[20] ^= 1; }},
    {"audit", "4", "line of 3", [](auto& e) { e.template Get<AppendAudit>(2).seq = 4; }},
    {"queues", "", "", [](auto& e) { e.template Get<PutQueues>().queues.yaml = "queues: 1\n"; }},
    {"users", "", "", [](auto& e) { e.template Get<PutUsers>().users.yaml = "users: 1\n"; }},
    {"users", "", "nlp",
     [](auto& e) { e.template Get<PutQueues>().queues.yaml = "queues: {default: {}}\n"; }},
    {"queue_usage", "gone/ada", "no such queue",
     [](auto& e) { e.template Get<PutQueueUsage>().queue = "gone/ada"; }},
    {"queue_days", "nlp/ada/20000", "below zero",
     [](auto& e) { e.template Get<PutQueueDay>().record.gpus.lost = -1; }},
    {"secrets", "ada/nlp/hf", "a part of it is empty",
     [](auto& e) { e.template Get<PutSecret>().secret.value.clear(); }},
};

TEST(CheckTest, EachPlantedViolationIsFound) {
  for (const Planted& planted : kPlanted) {
    EveryRecordForTest every = EveryRecord();
    planted.plant(every);
    const std::vector<Violation> found = CheckOf(every.operations);
    const bool named = std::ranges::any_of(found, [&planted](const Violation& each) {
      return each.table == planted.table && each.key == planted.key && !each.next.empty() &&
             each.what.find(planted.what) != std::string::npos;
    });
    std::string all;
    for (const Violation& each : found)
      all += each.table + " " + each.key + ": " + each.what + "\n";
    EXPECT_TRUE(named) << planted.table << " " << planted.key << ": " << planted.what << "\n"
                       << all;
  }
}

TEST(CheckTest, ARecordThatCannotBeReadIsNamedAndTheOthersAreChecked) {
  using Kind = JournalOperation::Kind;
  std::string more;
  AppendOperation({Kind::kPutNode, 0, "n2", {}, "{\"name\":"}, &more);
  AppendOperation({Kind::kPutNode, 0, "n3", {}, "{\"name\":\"n4\"}"}, &more);
  EveryRecordForTest every = EveryRecord();
  Queued(every).queue = "gone";
  const std::vector<Violation> found = CheckOf(every.operations, more);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].table + " " + found[0].key, "nodes n2");
  EXPECT_THAT(found[0].what, HasSubstr("cannot be read"));
  EXPECT_EQ(found[1].key, "n3");
  EXPECT_THAT(found[1].what, HasSubstr("'n4'"));
  EXPECT_EQ(found[2].key, "q");
}

TEST(CheckTest, BytesThatAreNoOperationsAreRefused) {
  EXPECT_EQ(CheckContents({.payload = "xx"}).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace muster
