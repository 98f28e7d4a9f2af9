#include "trainer/checkpoint/shard_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "common/base/files.h"
#include "trainer/checkpoint/checkpoint_testing.h"
#include "trainer/checkpoint/shard_header.h"

namespace muster {
namespace {

using testing::State;
using testing::TempDir;

ShardHeader HeaderOf(const State& state, Step step = 50) {
  ShardHeader header;
  header.job_id = "0123456789";
  header.generation = 2;
  header.rank = 1;
  header.world_size = 3;
  header.cursor = {step, 1600, 123'456, ~0ull, 0x8000'0000'0000'0001ull};
  header.arrays = state.arrays();
  return header;
}

void FlipByte(const std::string& path, std::int64_t offset) {
  auto content = *ReadFile(path);
  content[static_cast<std::size_t>(offset)] ^= 0x10;
  ASSERT_TRUE(WriteFileAtomically(path, content).ok());
}

class ShardFile : public ::testing::Test {
 protected:
  ShardRecord Write() {
    const auto record = WriteShard(path_, HeaderOf(state_));
    EXPECT_TRUE(record.ok()) << record.status().ToString();
    return *record;
  }
  Status Verify(const ShardRecord& record) { return VerifyShard(dir_.path(), record); }

  const TempDir dir_;
  const std::string path_ = dir_.path() + "/rank-00001.shard";
  State state_{1};
};

TEST_F(ShardFile, ComesBackAsItWasWritten) {
  const ShardRecord record = Write();
  EXPECT_EQ(record.rank, 1);
  EXPECT_EQ(record.file, "rank-00001.shard");
  EXPECT_EQ(record.bytes, std::filesystem::file_size(path_));
  EXPECT_EQ(record.checksum.substr(0, 5), "xxh3:");
  EXPECT_EQ(record.checksum.size(), 21u);
  EXPECT_TRUE(Verify(record).ok());

  const auto header = ReadShardHeader(path_);
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  EXPECT_EQ(header->job_id, "0123456789");
  EXPECT_EQ(header->generation, 2);
  EXPECT_EQ(header->rank, 1);
  EXPECT_EQ(header->world_size, 3);
  EXPECT_EQ(header->cursor, HeaderOf(state_).cursor);

  State other(9);
  ASSERT_TRUE(CheckShardLayout(*header, other.arrays(), path_).ok());
  ASSERT_TRUE(ReadShardArrays(path_, other.arrays()).ok());
  EXPECT_EQ(other, state_);
}

TEST_F(ShardFile, DataLiesAtAlignedOffsets) {
  Write();
  const auto encoded = EncodeShardHeader(HeaderOf(state_));
  for (const std::uint64_t offset : encoded.offsets) EXPECT_EQ(offset % 64, 0u);
  const auto content = *ReadFile(path_);
  EXPECT_EQ(content.size(), encoded.file_bytes);
  EXPECT_EQ(std::memcmp(content.data() + encoded.offsets[0], state_.weight.data(),
                        state_.weight.size() * sizeof(float)),
            0);
}

TEST_F(ShardFile, LeavesNoTemporaryFile) {
  Write();
  int files = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(dir_.path()))
    ++files;
  EXPECT_EQ(files, 1);
}

TEST_F(ShardFile, FlippedByteIsFoundWhereverItIs) {
  const ShardRecord record = Write();
  for (const std::int64_t offset :
       {std::int64_t{0}, std::int64_t{30}, static_cast<std::int64_t>(record.bytes) - 1}) {
    FlipByte(path_, offset);
    const Status status = Verify(record);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find(path_), std::string::npos) << status.message();
    FlipByte(path_, offset);
  }
  EXPECT_TRUE(Verify(record).ok());
}

TEST_F(ShardFile, TruncatedShardIsFound) {
  const ShardRecord record = Write();
  ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(record.bytes) - 4), 0);
  EXPECT_EQ(Verify(record).code(), StatusCode::kDataLoss);
  EXPECT_EQ(ReadShardHeader(path_).status().code(), StatusCode::kDataLoss);
  ASSERT_EQ(::truncate(path_.c_str(), 10), 0);
  EXPECT_EQ(ReadShardHeader(path_).status().code(), StatusCode::kDataLoss);
}

TEST_F(ShardFile, MissingShardIsNotFound) {
  const ShardRecord record = Write();
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  EXPECT_EQ(Verify(record).code(), StatusCode::kNotFound);
}

TEST_F(ShardFile, HeaderThatClaimsTooMuchIsRefused) {
  const std::string preamble = EncodeShardHeader(HeaderOf(state_)).text.substr(0, 24);
  EXPECT_TRUE(DecodeShardPreamble(preamble, 100'000).ok());
  EXPECT_EQ(DecodeShardPreamble(preamble, 40).status().code(), StatusCode::kDataLoss);
  std::string other_version = preamble;
  other_version[8] = 9;
  EXPECT_NE(DecodeShardPreamble(other_version, 100'000).status().message().find("version is 9"),
            std::string::npos);
  std::string other_magic = preamble;
  other_magic[0] = 'X';
  EXPECT_FALSE(DecodeShardPreamble(other_magic, 100'000).ok());
}

TEST_F(ShardFile, ArraysOutsideOfTheFileAreRefused) {
  const EncodedShardHeader encoded = EncodeShardHeader(HeaderOf(state_));
  std::uint64_t length = 0;
  std::memcpy(&length, encoded.text.data() + 16, sizeof(length));
  const std::string good = encoded.text.substr(24, length);
  ASSERT_TRUE(DecodeShardHeader(good, encoded.file_bytes).ok());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bad = good;
    const std::size_t at = bad.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    return DecodeShardHeader(bad, encoded.file_bytes).status().code();
  };
  EXPECT_EQ(with("\"count\":1000", "\"count\":9000000000000000000"), StatusCode::kDataLoss);
  EXPECT_EQ(with("\"count\":1000", "\"count\":-1"), StatusCode::kDataLoss);
  EXPECT_EQ(with("\"array_offset\":0", "\"array_offset\":100000"), StatusCode::kDataLoss);
  EXPECT_EQ(with("\"dtype\":\"float32\"", "\"dtype\":\"float17\""), StatusCode::kDataLoss);
  EXPECT_EQ(with("\"cursor\"", "\"kursor\""), StatusCode::kDataLoss);
  EXPECT_EQ(DecodeShardHeader("[1, 2", 100).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(DecodeShardHeader(good, encoded.file_bytes + 1).status().code(), StatusCode::kDataLoss);
}

TEST_F(ShardFile, LayoutMustBeTheEnginesOwn) {
  Write();
  const auto header = *ReadShardHeader(path_);
  const auto message = [&](auto change) {
    std::vector<ShardArray> arrays = state_.arrays();
    change(arrays);
    const Status status = CheckShardLayout(header, arrays, "F");
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    return status.message();
  };
  using Arrays = std::vector<ShardArray>;
  EXPECT_NE(
      message([](Arrays& a) { a[0].name = "other"; }).find("array block/weight instead of other"),
      std::string::npos);
  EXPECT_NE(message([](Arrays& a) { a[0].count = 999; }).find("has 1000 elements, not 999"),
            std::string::npos);
  EXPECT_NE(
      message([](Arrays& a) { a[0].type = ElementType::kInt64; }).find("is float32, not int64"),
      std::string::npos);
  EXPECT_NE(message([](Arrays& a) { a[0].intervals[0].shape = {1000}; }).find("tensor q_proj"),
            std::string::npos);
  EXPECT_NE(message([](Arrays& a) { a.pop_back(); }).find("arrays"), std::string::npos);
}

// A full disk in miniature: the kernel refuses to let the file grow.
TEST_F(ShardFile, FullDiskFailsCleanlyAndKeepsTheOldFile) {
  const ShardRecord record = Write();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{1024, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  state_.weight[0] += 1;
  const auto failed = WriteShard(path_, HeaderOf(state_, 51));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_FALSE(failed.ok());
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
  EXPECT_TRUE(Verify(record).ok());
}

TEST_F(ShardFile, WritingIntoAMissingDirectoryFails) {
  const auto failed = WriteShard(dir_.path() + "/none/rank-00001.shard", HeaderOf(state_));
  EXPECT_EQ(failed.status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster
