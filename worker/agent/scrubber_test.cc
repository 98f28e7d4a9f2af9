#include "worker/agent/scrubber.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>

#include "common/base/testing/temp_dir.h"
#include "common/checkpoint_format/shard_frame.h"
#include "tests/support/eventually.h"
#include "worker/agent/checkpoint_scrub.h"
#include "worker/agent/owner_files.h"
#include "worker/agent/owner_frames.h"
#include "worker/agent/testing/fake_launcher.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const JobId kJob{"0123456789"};
constexpr std::size_t kPieces = 3;

// A checkpoint of two shards of three pieces each.
class ScrubTest : public testing::Test {
 protected:
  void SetUp() override {
    order_ = {.scrub_id = 7,
              .job = kJob,
              .output_dir = dir_.path(),
              .checkpoint = {.step = 10, .generation = 1, .directory = "step-00000010-g1"}};
    fs::create_directories(Directory());
    for (int rank = 0; rank < 2; ++rank) order_.checkpoint.shards.push_back(WriteShard(rank));
  }
  std::string Directory() const { return dir_ / "checkpoints/step-00000010-g1"; }
  std::string Shard(int rank) const {
    return Directory() + "/rank-0000" + std::to_string(rank) + ".shard";
  }
  ShardInfo WriteShard(int rank) const {
    const ShardFrame frame = ShardFrame::Make(2, kPieces * kShardPieceBytes);
    const std::string head = EncodeShardHead(frame, "{}");
    const std::string data(frame.data_bytes, static_cast<char>('a' + rank));
    std::string table;
    for (std::size_t i = 0; i < kPieces; ++i) {
      const std::uint64_t sum = PieceChecksum(data.data() + i * kShardPieceBytes, kShardPieceBytes);
      table.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
    }
    table.resize(frame.table_bytes());
    std::ofstream(Shard(rank), std::ios::binary) << head << data << table;
    return {rank, fs::path(Shard(rank)).filename(), frame.file_bytes(), ShardChecksum(head, table)};
  }
  CheckpointScrubbed Scrub() const {
    return ScrubShards(order_, [](std::uint64_t) { return OkStatus(); });
  }
  const TempDirForTest dir_;
  ScrubCheckpoint order_;
};

TEST_F(ScrubTest, AWholeCheckpointIsRead) {
  std::uint64_t bytes = 0;
  const CheckpointScrubbed scrubbed = ScrubShards(order_, [&](std::uint64_t next) {
    bytes += next;
    return OkStatus();
  });
  EXPECT_EQ(scrubbed.outcome, ScrubOutcome::kWhole) << scrubbed.detail;
  EXPECT_EQ(scrubbed.scrub_id, 7u);
  EXPECT_EQ(scrubbed.directory, "step-00000010-g1");
  EXPECT_GE(bytes, 2 * kPieces * kShardPieceBytes) << "every piece is announced";
}

TEST_F(ScrubTest, AFileServerReadsAsTheWorkerLetsIt) {
  FakeLauncher launcher;
  OwnerFiles files(launcher.socket());
  order_.account = "ada";
  std::uint64_t bytes = 0;
  const CheckpointScrubbed scrubbed = files.Scrub(order_, [&](std::uint64_t next) {
    bytes += next;
    return OkStatus();
  });
  EXPECT_EQ(scrubbed.outcome, ScrubOutcome::kWhole) << scrubbed.detail;
  EXPECT_EQ(scrubbed.scrub_id, 7u);
  EXPECT_GE(bytes, 2 * kPieces * kShardPieceBytes) << "every piece is announced";
  const CheckpointScrubbed cancelled =
      files.Scrub(order_, [](std::uint64_t) { return Cancelled("enough"); });
  EXPECT_EQ(cancelled.outcome, ScrubOutcome::kCalledOff);
  fs::remove(Shard(1));
  EXPECT_EQ(files.Scrub(order_, [](std::uint64_t) { return OkStatus(); }).outcome,
            ScrubOutcome::kMissing);
}

// In a file server's place: asks for so many bytes again and again, for some seconds.
void AskWithoutEnd(int fd, std::uint64_t bytes) {
  const Deadline end = Deadline::After(std::chrono::seconds(5));
  PacketSocket worker{UniqueFd(fd)};
  const auto packet = worker.Receive(end);
  if (!packet.ok() || packet->fds.size() != 1) return;
  const int call = packet->fds[0].get();
  bool goes_on = ReadFrame(call, end).ok();
  while (goes_on && !end.Expired())
    goes_on = WriteFrame(call, {{"asks", "read"}, {"bytes", bytes}}, end).ok() &&
              ReadFrame(call, end).ok();
}

TEST_F(ScrubTest, AFileServerThatAsksForMoreThanTheCheckpointHasIsLeft) {
  order_.account = "ada";
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{kShardPieceBytes}}) {
    FakeLauncher launcher([bytes](int fd) { AskWithoutEnd(fd, bytes); });
    OwnerFiles files(launcher.socket());
    std::uint64_t asked = 0;
    const CheckpointScrubbed scrubbed = files.Scrub(order_, [&asked](std::uint64_t next) {
      asked += next;
      return OkStatus();
    });
    EXPECT_EQ(scrubbed.outcome, ScrubOutcome::kUnreachable);
    EXPECT_THAT(scrubbed.detail, HasSubstr("more than the checkpoint has")) << bytes;
    EXPECT_LE(asked, 2 * 2 * (kPieces + 1) * kShardPieceBytes);
  }
}

TEST_F(ScrubTest, ACancelEndsAScrubWhoseFileServerOnlyAsks) {
  FakeLauncher launcher([](int fd) { AskWithoutEnd(fd, 1); });
  OwnerFiles files(launcher.socket());
  order_.account = "ada";
  order_.checkpoint.shards[0].bytes = std::uint64_t{1} << 40;
  std::promise<CheckpointScrubbed> done;
  Scrubber scrubber(files, [&done](CheckpointScrubbed scrubbed) { done.set_value(scrubbed); });
  scrubber.Start(order_, {});
  EXPECT_TRUE(Eventually([&] { return launcher.started() == 1; }));
  scrubber.Cancel(order_.scrub_id);
  auto ended = done.get_future();
  ASSERT_EQ(ended.wait_for(std::chrono::seconds(2)), std::future_status::ready);
  EXPECT_EQ(ended.get().outcome, ScrubOutcome::kCalledOff);
}

TEST_F(ScrubTest, AManifestThatIsAFifoKeepsNoReaderWaiting) {
  fs::remove_all(Directory());
  fs::create_directories(dir_ / "checkpoints/step-00000005-g1");
  ASSERT_EQ(::mkfifo((dir_ / "checkpoints/step-00000005-g1/manifest.json").c_str(), 0600), 0);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(Scrub().outcome, ScrubOutcome::kUnreachable);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(ScrubTest, AFlippedByteIsNamedWithItsFileAndOffset) {
  std::fstream(Shard(1), std::ios::in | std::ios::out).seekp(2 * kShardPieceBytes) << "!";
  const CheckpointScrubbed scrubbed = Scrub();
  EXPECT_EQ(scrubbed.outcome, ScrubOutcome::kDamaged);
  EXPECT_EQ(scrubbed.file, "rank-00001.shard");
  EXPECT_THAT(scrubbed.detail, HasSubstr("damaged in bytes 1052672 to 2101247"));
}

TEST_F(ScrubTest, ATruncatedShardIsDamaged) {
  fs::resize_file(Shard(0), 5000);
  const CheckpointScrubbed scrubbed = Scrub();
  EXPECT_EQ(scrubbed.outcome, ScrubOutcome::kDamaged);
  EXPECT_THAT(scrubbed.detail, HasSubstr("has 5000 bytes"));
}

TEST_F(ScrubTest, ADeletedShardIsMissing) {
  fs::remove(Shard(1));
  const CheckpointScrubbed scrubbed = Scrub();
  EXPECT_EQ(scrubbed.outcome, ScrubOutcome::kMissing);
  EXPECT_EQ(scrubbed.file, "rank-00001.shard");
}

TEST_F(ScrubTest, ADeletedCheckpointIsMissingOnlyBesideAnotherOneOfTheJob) {
  fs::remove_all(Directory());
  EXPECT_EQ(Scrub().outcome, ScrubOutcome::kUnreachable);
  fs::create_directories(dir_ / "checkpoints/step-00000020-g1");
  const std::string manifest = dir_ / "checkpoints/step-00000020-g1/manifest.json";
  std::ofstream(manifest) << R"({"job_id": "ffffffffff"})";
  EXPECT_EQ(Scrub().outcome, ScrubOutcome::kUnreachable) << "another job's";
  std::ofstream(manifest) << R"({"job_id": "0123456789"})";
  EXPECT_EQ(Scrub().outcome, ScrubOutcome::kMissing);
}

TEST_F(ScrubTest, AnOutputDirectoryThatIsNotThereIsNoDamage) {
  order_.output_dir = dir_ / "not-mounted";
  const CheckpointScrubbed scrubbed = Scrub();
  EXPECT_EQ(scrubbed.outcome, ScrubOutcome::kUnreachable);
  EXPECT_THAT(scrubbed.detail, HasSubstr("not-mounted"));
}

TEST_F(ScrubTest, AFileSystemThatFailsIsNoDamage) {
  fs::remove(Shard(0));
  fs::create_symlink(Shard(0), Shard(0));  // open fails with ELOOP
  EXPECT_EQ(Scrub().outcome, ScrubOutcome::kUnreadable);
}

TEST_F(ScrubTest, ANameThatLeadsElsewhereIsNotRead) {
  order_.checkpoint.directory = "../../etc";
  EXPECT_EQ(Scrub().outcome, ScrubOutcome::kUnreadable);
}

TEST_F(ScrubTest, AShardOfHalfAMinuteAgoIsNotBeingWrittenAnyMore) {
  EXPECT_FALSE(ShardIsBeingWritten({dir_.path()}));
  const std::string temporary = Directory() + "/rank-00000.shard.tmp";
  std::ofstream{temporary} << "x";
  EXPECT_TRUE(ShardIsBeingWritten({"/no/such/directory", dir_.path()}));
  fs::last_write_time(temporary, fs::file_time_type::clock::now() - std::chrono::seconds(31));
  EXPECT_FALSE(ShardIsBeingWritten({dir_.path()})) << "its writer was killed";
}

// The scrubber's answers, waited for.
struct Answers {
  CheckpointScrubbed Next() {
    std::unique_lock lock(mutex);
    const bool came =
        changed.wait_for(lock, std::chrono::seconds(20), [&] { return !all.empty(); });
    if (!came) {
      ADD_FAILURE() << "no answer";
      return {};
    }
    CheckpointScrubbed first = all.front();
    all.erase(all.begin());
    return first;
  }
  bool None() {
    const std::lock_guard lock(mutex);
    return all.empty();
  }
  void Add(CheckpointScrubbed scrubbed) {
    const std::lock_guard lock(mutex);
    all.push_back(std::move(scrubbed));
    changed.notify_all();
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<CheckpointScrubbed> all;
};

class ScrubberTest : public ScrubTest {
 protected:
  Answers answers_;
  OwnerFiles files_{""};
  Scrubber scrubber_{files_,
                     [this](CheckpointScrubbed scrubbed) { answers_.Add(std::move(scrubbed)); }};
};

TEST_F(ScrubberTest, AnswersWhatItWasAsked) {
  scrubber_.Start(order_, {{"", dir_.path()}});
  EXPECT_EQ(answers_.Next().outcome, ScrubOutcome::kWhole);
}

TEST_F(ScrubberTest, IsNotFasterThanItMay) {
  order_.max_bytes_per_second = 2 * kPieces * kShardPieceBytes * 4;
  const TimePoint begin = SystemClock().Now();
  scrubber_.Start(order_, {});
  EXPECT_EQ(answers_.Next().outcome, ScrubOutcome::kWhole);
  // A quarter of a second, but for the last read, which nothing follows.
  EXPECT_GT(ToSeconds(SystemClock().Now() - begin), 0.15);
}

TEST_F(ScrubberTest, WaitsWhileItIsHeldAndGoesOn) {
  scrubber_.Hold();
  scrubber_.Start(order_, {});
  fs::remove(Shard(1));  // it is not past the first read
  scrubber_.Resume();
  EXPECT_EQ(answers_.Next().outcome, ScrubOutcome::kMissing);
}

TEST_F(ScrubberTest, WaitsForACheckpointThatIsBeingWritten) {
  const std::string temporary = Directory() + "/rank-00000.shard.tmp";
  std::ofstream{temporary} << "x";
  scrubber_.Start(order_, {{"", dir_.path()}});
  EXPECT_TRUE(answers_.None());
  fs::remove(Shard(1));
  fs::remove(temporary);
  EXPECT_EQ(answers_.Next().outcome, ScrubOutcome::kMissing);
}

TEST_F(ScrubberTest, ANewOrderCallsOffTheOneBefore) {
  scrubber_.Hold();
  scrubber_.Start(order_, {});
  order_.scrub_id = 8;
  scrubber_.Start(order_, {});
  scrubber_.Resume();
  CheckpointScrubbed answer = answers_.Next();
  if (answer.scrub_id == 7) {  // it had begun
    EXPECT_EQ(answer.outcome, ScrubOutcome::kCalledOff);
    answer = answers_.Next();
  }
  EXPECT_EQ(answer.scrub_id, 8u);
  EXPECT_EQ(answer.outcome, ScrubOutcome::kWhole);
}

TEST_F(ScrubberTest, AReadingWithoutAWaiterIsCancelled) {
  scrubber_.Hold();
  scrubber_.Start(order_, {});
  scrubber_.Cancel(order_.scrub_id + 1);  // of another one: nothing happens
  scrubber_.Cancel(order_.scrub_id);
  order_.scrub_id = 9;
  scrubber_.Resume();
  scrubber_.Start(order_, {});
  CheckpointScrubbed answer = answers_.Next();
  while (answer.scrub_id != 9) {
    EXPECT_EQ(answer.outcome, ScrubOutcome::kCalledOff);
    answer = answers_.Next();
  }
  EXPECT_EQ(answer.outcome, ScrubOutcome::kWhole);
}

class VerifierTest : public ScrubberTest {
 protected:
  Answers verified_;
  Scrubber verifier_{files_,
                     [this](CheckpointScrubbed scrubbed) { verified_.Add(std::move(scrubbed)); },
                     scrubber_};
};

TEST_F(VerifierTest, ANewOrderOfTheSameJobCallsOffTheOneBeforeAndTheScrubGoesOn) {
  order_.max_bytes_per_second = 4 * kShardPieceBytes;  // a second and a half
  verifier_.Start(order_, {});
  ScrubCheckpoint scrub = order_;
  scrub.scrub_id = 8;
  scrub.max_bytes_per_second = 0;
  verifier_.Start(scrub, {});  // of the same job: it calls off the first
  CheckpointScrubbed answer = verified_.Next();
  if (answer.scrub_id == 7) {  // it had begun
    EXPECT_EQ(answer.outcome, ScrubOutcome::kCalledOff);
    answer = verified_.Next();
  }
  EXPECT_EQ(answer.scrub_id, 8u);
  EXPECT_EQ(answer.outcome, ScrubOutcome::kWhole);
  scrubber_.Start(scrub, {});
  EXPECT_EQ(answers_.Next().outcome, ScrubOutcome::kWhole) << "it is held no longer";
}

TEST_F(VerifierTest, ReadsOneJobAfterTheOther) {
  order_.max_bytes_per_second = 16 * kShardPieceBytes;
  verifier_.Start(order_, {});
  ScrubCheckpoint other = order_;
  other.scrub_id = 8;
  other.job = JobId{"ffffffffff"};
  verifier_.Start(other, {});
  for (const std::uint64_t id : {7, 8}) {
    const CheckpointScrubbed answer = verified_.Next();
    EXPECT_EQ(answer.scrub_id, id);
    EXPECT_EQ(answer.outcome, ScrubOutcome::kWhole);
  }
}

TEST_F(VerifierTest, ACheckpointThatIsBeingWrittenDoesNotHoldItUp) {
  std::ofstream{Directory() + "/rank-00000.shard.tmp"} << "x";
  verifier_.Start(order_, {});
  EXPECT_EQ(verified_.Next().outcome, ScrubOutcome::kWhole);
}

TEST_F(ScrubberTest, EndsInTheMiddleOfAnOrder) {
  auto scrubber = std::make_unique<Scrubber>(files_, [](const CheckpointScrubbed&) {});
  scrubber->Hold();
  scrubber->Start(order_, {});
  scrubber.reset();  // does not wait for the hold to end
}

}  // namespace
}  // namespace muster::worker
