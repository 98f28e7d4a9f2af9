#include "coordinator/store/journal_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "coordinator/store/journal_image.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

TEST(JournalFormatTest, AFrameComesBackAsItWas) {
  const std::string bytes = EncodeFrame({FrameKind::kSnapshot, 3, 500, "payload"});
  const auto frame = DecodeFrame(bytes, "f");
  ASSERT_TRUE(frame.ok()) << frame.status().ToString();
  EXPECT_EQ(frame->kind, FrameKind::kSnapshot);
  EXPECT_EQ(frame->epoch, 3u);
  EXPECT_EQ(frame->number, 500u);
  EXPECT_EQ(frame->payload, "payload");
}

TEST(JournalFormatTest, EveryBitAndEveryLengthThatIsWrongIsNoticed) {
  const std::string bytes = EncodeFrame({FrameKind::kCommit, 3, 500, "payload"});
  for (std::size_t i = 0; i < bytes.size() * 8; ++i) {
    std::string other = bytes;
    other[i / 8] = static_cast<char>(other[i / 8] ^ (1 << (i % 8)));
    EXPECT_FALSE(DecodeFrame(other, "f").ok()) << "bit " << i;
  }
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(DecodeFrame(bytes.substr(0, length), "f").ok()) << length;
  }
  EXPECT_THAT(DecodeFrame(bytes + "x", "f").status().message(), HasSubstr("8 bytes instead of 7"));
}

// Read by later versions: the bytes of version 6.
TEST(JournalFormatTest, VersionSixStaysAsItIs) {
  const std::string bytes = EncodeFrame({FrameKind::kCommit, 0x0102, 0x0304, "ab"});
  EXPECT_EQ(bytes.substr(0, 40), std::string("MUSTERJL"
                                             "\x06\0\0\0"
                                             "\x01\0\0\0"
                                             "\x02\x01\0\0\0\0\0\0"
                                             "\x04\x03\0\0\0\0\0\0"
                                             "\x02\0\0\0\0\0\0\0",
                                             40));
  EXPECT_EQ(bytes.size(), 58u);
  std::string payload;
  AppendOperation(
      JournalOperation{JournalOperation::Kind::kPutCheckpoint, 5, "job", "step-5", "{}"}, &payload);
  EXPECT_EQ(payload, std::string("\x03"
                                 "\x05\0\0\0\0\0\0\0"
                                 "\x03\0\0\0"
                                 "\x06\0\0\0"
                                 "\x02\0\0\0"
                                 "jobstep-5{}",
                                 32));
}

TEST(JournalFormatTest, APayloadThatIsCutOffOrOfAnUnknownKindIsRefusedWithItsByte) {
  std::string payload;
  AppendOperation(JournalOperation{JournalOperation::Kind::kPutNode, 0, "n", {}, "{}"}, &payload);
  const std::size_t first = payload.size();
  AppendOperation(JournalOperation{JournalOperation::Kind::kPutNode, 0, "m", {}, "{}"}, &payload);
  for (std::size_t length = 1; length < payload.size(); ++length) {
    int seen = 0;
    const Status status = ForEachOperation(std::string_view(payload).substr(0, length),
                                           [&](const JournalOperation&) { ++seen; });
    EXPECT_EQ(status.ok(), length == first);
    EXPECT_EQ(seen, length >= first ? 1 : 0);
  }
  payload[first] = 99;
  EXPECT_THAT(ForEachOperation(payload, [](const JournalOperation&) {}).message(),
              HasSubstr("byte " + std::to_string(first)));
}

TEST(JournalFormatTest, EachKindOfOperationComesBackAsItWas) {
  const SecretName secret{.owner = "ada", .queue = "nlp/west", .name = "hf"};
  JobRecord job;
  job.id = JobId{"j"};
  const AttemptRecord attempt{.job = JobId{"j"}, .generation = 3};
  const CheckpointRecord checkpoint{.job = JobId{"j"}, .directory = "step-1"};
  NodeRecord node;
  node.name = NodeName{"n"};
  const EventRecord event{.seq = 7, .job = JobId{"j"}};
  const std::vector<StoreOperation> all = {PutJob{job},
                                           PutAttempt{attempt},
                                           PutCheckpoint{checkpoint},
                                           DeleteCheckpoint{JobId{"j"}, "step-1"},
                                           PutNode{node},
                                           AppendEvent{event},
                                           DeleteNode{NodeName{"n"}},
                                           ArchiveJob{{.id = JobId{"j"}}},
                                           DeleteArchivedJob{JobId{"j"}},
                                           PutArchivedJob{job},
                                           PutArchivedCheckpoint{checkpoint},
                                           PutArchivedTime{{1, 2}},
                                           PutQueues{{1, "q"}},
                                           PutUsers{{1, "u"}},
                                           AppendAudit{3, "line"},
                                           PutSecret{{.secret = secret, .key_id = "k"}},
                                           DeleteSecret{secret},
                                           PutQueueUsage{"q", 0.5},
                                           DeleteQueueUsage{"q"},
                                           PutQueueDay{{.queue = "q", .day = 9, .user = "ada"}},
                                           DeleteQueueDay{"q", 9}};
  ASSERT_EQ(all.size(), std::variant_size_v<StoreOperation>);
  for (const StoreOperation& each : all) {
    std::string bytes, again;
    AppendOperation(each, &bytes);
    ASSERT_TRUE(ForEachOperation(bytes, [&again](const JournalOperation& operation) {
                  const auto decoded = DecodeOperation(operation);
                  ASSERT_TRUE(decoded.ok() && *decoded) << decoded.status().ToString();
                  AppendOperation(**decoded, &again);
                }).ok());
    EXPECT_EQ(again, bytes);
  }
}

TEST(JournalFormatTest, ARecordUnderTheKeyOfAnotherIsRefused) {
  const auto decoded =
      DecodeOperation({JournalOperation::Kind::kPutNode, 0, "n2", {}, "{\"name\":\"n1\"}"});
  EXPECT_EQ(decoded.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(decoded.status().message(), HasSubstr("'n1'"));
}

TEST(JournalFormatTest, AClaimComesBackAsItWas) {
  const EpochClaim claim{.epoch = 4,
                         .node = "n\"1",
                         .pid = 77,
                         .address = "10.0.0.1:4000",
                         .page = "10.0.0.1:4001",
                         .ready = true,
                         .unix_ms = 1700000000000,
                         .nonce = "x"};
  const auto decoded = DecodeClaim(EncodeClaim(claim));
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(*decoded, claim);
  EXPECT_EQ(claim.Text(), "epoch 4 on node n\"1 (pid 77, 10.0.0.1:4000)");
  for (const char* bad : {"", "{}", "[]", "{\"epoch\":-1,\"node\":\"n\",\"pid\":\"x\"}"}) {
    EXPECT_EQ(DecodeClaim(bad).status().code(), StatusCode::kDataLoss) << bad;
  }
}

TEST(JournalFormatTest, NamesAreNumbersOfSixteenDigitsOrMore) {
  EXPECT_EQ(NumberedName(42), "0000000000000042");
  EXPECT_EQ(NumberOfName("0000000000000042"), 42u);
  EXPECT_EQ(NumberOfName(NumberedName(123456789012345678)), 123456789012345678u);
  for (const char* other : {"", "42", ".tmp-0000000000000042", "000000000000004x"}) {
    EXPECT_EQ(NumberOfName(other), 0u) << other;
  }
}

// The bytes that a version before queues wrote.
TEST(JournalFormatTest, VersionThreeIsRead) {
  const std::string bytes(
      "MUSTERJL"
      "\x03\0\0\0"
      "\x01\0\0\0"
      "\x02\0\0\0\0\0\0\0"
      "\x05\0\0\0\0\0\0\0"
      "\x00\0\0\0\0\0\0\0"
      "\xc2\x94\xd3\x38\x05\x80\x06\x2d"
      "\x2c\x88\xb3\x5b\x39\x72\x97\x05",
      56);
  const auto frame = DecodeFrame(bytes, "f");
  ASSERT_TRUE(frame.ok()) << frame.status().ToString();
  EXPECT_EQ(frame->epoch, 2u);
  EXPECT_EQ(frame->number, 5u);
}

TEST(JournalFormatTest, ASnapshotKeepsTheQueues) {
  std::string payload;
  const std::vector<StoreOperation> operations = {PutQueues{{3, "queues: {default: {}}\n"}},
                                                  PutQueueUsage{"a", 1.5},
                                                  PutQueueUsage{"b", 2},
                                                  DeleteQueueUsage{"b"},
                                                  PutQueueDay{{"a", 20'000, {1, 2}, {3, 4}}},
                                                  PutQueueDay{{"b", 20'000, {}, {}}},
                                                  DeleteQueueDay{"b", 20'000}};
  for (const StoreOperation& operation : operations) AppendOperation(operation, &payload);
  JournalImage image(10);
  ASSERT_TRUE(image.Apply(payload).ok());
  JournalImage again(10);
  ASSERT_TRUE(again.Apply(image.Snapshot()).ok());
  const auto state = again.Load(10);
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  EXPECT_EQ(state->queues, (QueuesRecord{3, "queues: {default: {}}\n"}));
  EXPECT_EQ(state->queue_usage, (std::map<std::string, double>{{"a", 1.5}}));
  EXPECT_EQ(state->queue_days, (std::vector<QueueDayRecord>{{"a", 20'000, {1, 2}, {3, 4}}}));
}

TEST(JournalFormatTest, ASnapshotKeepsWhatIsArchived) {
  JobRecord job;
  job.id = JobId{"a"};
  job.submit_order = 7;
  AttemptRecord attempt;
  attempt.job = job.id;
  attempt.generation = 1;
  std::string payload;
  const std::vector<StoreOperation> operations = {
      PutJob{job}, PutAttempt{attempt}, ArchiveJob{ArchivedJobOf(job)}, PutArchivedTime{{1, 2}}};
  for (const StoreOperation& operation : operations) AppendOperation(operation, &payload);
  JournalImage image(10);
  ASSERT_TRUE(image.Apply(payload).ok());
  JournalImage again(10);
  ASSERT_TRUE(again.Apply(image.Snapshot()).ok());
  const auto state = again.Load(10);
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  EXPECT_TRUE(state->jobs.empty());
  EXPECT_EQ(state->archived, std::vector{ArchivedJobOf(job)});
  EXPECT_EQ(state->archived_time, (RankMicros{1, 2}));
  const auto read = again.SelectArchived({.job = job.id});
  ASSERT_TRUE(read.ok() && read->size() == 1);
  EXPECT_EQ(read->front().attempts, std::vector{attempt});
}

}  // namespace
}  // namespace muster
