#include "trainer/state/checkpoint/shard_file.h"
#include "common/base/testing/temp_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "common/base/files.h"
#include "trainer/state/checkpoint/testing/checkpoint_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::ImageOf;
using testing::State;

ShardHeader HeaderOf(const State& state, Step step = 50) {
  ShardHeader header;
  header.job_id = "0123456789";
  header.generation = 2;
  header.rank = 1;
  header.world_size = 3;
  header.parameters = 990;
  header.cursor = {step, 1600, 123'456, ~0ull, 0x8000'0000'0000'0001ull, 7, 1024.0, 3};
  header.arrays = state.arrays();
  return header;
}

void FlipByte(const std::string& path, std::uint64_t offset) {
  auto content = *ReadFile(path);
  content[offset] ^= 0x10;
  ASSERT_TRUE(WriteFileAtomically(path, content).ok());
}

class ShardFile : public ::testing::Test {
 protected:
  ShardRecord Write() {
    const auto record = WriteShard(path_, ImageOf(HeaderOf(state_)));
    EXPECT_TRUE(record.ok()) << record.status().ToString();
    return *record;
  }
  Status Verify(const ShardRecord& record) { return VerifyShard(dir_.path(), record); }

  // All arrays of the file, through a reader.
  Status ReadAll(const ShardRecord& record, State* state) {
    MUSTER_ASSIGN_OR_RETURN(const ShardReader reader, ShardReader::Open(dir_.path(), record));
    PieceCache cache;
    const std::vector<ShardArray> arrays = state->arrays();
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      MUSTER_RETURN_IF_ERROR(
          reader.Read(reader.places().offsets[i], arrays[i].bytes(), arrays[i].data, &cache));
    }
    return OkStatus();
  }

  const TempDirForTest dir_;
  const std::string path_ = dir_.path() + "/rank-00001.shard";
  State state_{1};
};

TEST_F(ShardFile, ComesBackAsItWasWritten) {
  const ShardRecord record = Write();
  EXPECT_EQ(record.rank, 1);
  EXPECT_EQ(record.file, "rank-00001.shard");
  EXPECT_EQ(record.bytes, std::filesystem::file_size(path_));
  EXPECT_EQ(record.checksum.substr(0, 10), "xxh3-tree:");
  EXPECT_EQ(record.checksum.size(), 26u);
  EXPECT_TRUE(Verify(record).ok());

  const auto header = ReadShardHeader(path_);
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  EXPECT_EQ(header->job_id, "0123456789");
  EXPECT_EQ(header->generation, 2);
  EXPECT_EQ(header->rank, 1);
  EXPECT_EQ(header->world_size, 3);
  EXPECT_EQ(header->parameters, 990);
  EXPECT_EQ(header->cursor, HeaderOf(state_).cursor);
  EXPECT_EQ(header->arrays[0].intervals, state_.arrays()[0].intervals);

  State other(9);
  ASSERT_TRUE(ReadAll(record, &other).ok());
  EXPECT_EQ(other, state_);
}

TEST_F(ShardFile, TellsWhatItsAdapterBelongsTo) {
  Write();
  EXPECT_EQ(ReadShardHeader(path_)->adapter, std::nullopt);
  ShardHeader header = HeaderOf(state_);
  header.adapter = AdapterOrigin{.base_model = "models/\"base\"",
                                 .base_weights = "xxh3:0123456789abcdef",
                                 .form = R"({"lora.alpha":6.5,"lora.r":4})"};
  ASSERT_TRUE(WriteShard(path_, ImageOf(header)).ok());
  const auto read = ReadShardHeader(path_);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->adapter, header.adapter);
  EXPECT_EQ(read->arrays.size(), state_.arrays().size());
}

TEST(AdapterOrigin, WhatIsNoneIsRefused) {
  for (const char* text : {"[]", "{}", R"({"base_model": "m", "base_weights": "x", "form": 3})",
                           R"({"base_model": 1, "base_weights": "x", "form": {}})"}) {
    EXPECT_EQ(AdapterOriginFromJson(text).status().code(), StatusCode::kDataLoss) << text;
  }
}

TEST_F(ShardFile, ImageIsKeptBetweenSavesAndMadeAnewForOtherArrays) {
  ShardImage image;
  image.Capture(HeaderOf(state_));
  const std::byte* memory = image.data();
  image.Capture(HeaderOf(State(7)));
  EXPECT_EQ(image.data(), memory);
  EXPECT_EQ(std::memcmp(image.data(), State(7).weight.data(), 4000), 0);
  ShardHeader small = HeaderOf(state_);
  small.arrays.erase(small.arrays.begin());
  image.Capture(small);
  EXPECT_EQ(image.bytes(), kShardBlock);
  EXPECT_EQ(std::memcmp(image.data(), state_.flags.data(), 77), 0);
  for (std::size_t i = 77; i < image.bytes(); ++i) ASSERT_EQ(image.data()[i], std::byte{0});
}

TEST_F(ShardFile, ReplicaThatWritesNothingLeavesAWholeFileWithoutArrays) {
  ShardHeader header = HeaderOf(state_);
  header.arrays.clear();
  const auto record = WriteShard(path_, ImageOf(header));
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  EXPECT_TRUE(Verify(*record).ok());
  EXPECT_TRUE(ShardReader::Open(dir_.path(), *record)->header().arrays.empty());
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
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{50}, record.bytes - 1}) {
    FlipByte(path_, offset);
    const Status status = Verify(record);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(path_));
    EXPECT_EQ(ShardReader::Open(dir_.path(), record).status().code(), StatusCode::kDataLoss);
    FlipByte(path_, offset);
  }
  EXPECT_TRUE(Verify(record).ok());
}

// More than two pieces, damaged in the second.
class LargeShardFile : public ShardFile {
 protected:
  LargeShardFile() : values_(700'000) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
    ShardHeader header = HeaderOf(state_);
    header.arrays = {{"u/weight",
                      ElementType::kFloat32,
                      700'000,
                      values_.data(),
                      {{"t", {700, 1000}, 0, 700'000, 0}}}};
    record_ = *WriteShard(path_, ImageOf(header));
  }
  Status ReadRange(std::uint64_t begin, std::uint64_t count, std::vector<float>* out) {
    MUSTER_ASSIGN_OR_RETURN(const ShardReader reader, ShardReader::Open(dir_.path(), record_));
    out->resize(count);
    PieceCache cache;
    return reader.Read(begin * sizeof(float), count * sizeof(float), out->data(), &cache);
  }

  std::vector<float> values_;
  ShardRecord record_;
};

TEST_F(LargeShardFile, AnyRangeIsRead) {
  for (const auto& [begin, count] : {std::pair<std::uint64_t, std::uint64_t>{0, 700'000},
                                     {1, 5},
                                     {262'143, 2},
                                     {262'144, 262'144},
                                     {262'140, 300'000},
                                     {699'999, 1},
                                     {5, 0}}) {
    std::vector<float> read;
    const Status status = ReadRange(begin, count, &read);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(read, std::vector<float>(values_.begin() + begin, values_.begin() + begin + count));
  }
}

TEST_F(LargeShardFile, DamageElsewhereHindersNobody) {
  const std::uint64_t data_begin = record_.bytes - 4096 - 2'801'664;
  FlipByte(path_, data_begin + kShardPieceBytes + 17);
  std::vector<float> read;
  EXPECT_TRUE(ReadRange(0, 262'144, &read).ok());
  EXPECT_TRUE(ReadRange(600'000, 100'000, &read).ok());
  const Status whole = ReadRange(262'144, 262'144, &read);
  EXPECT_EQ(whole.code(), StatusCode::kDataLoss);
  EXPECT_THAT(whole.message(), HasSubstr(path_ + " is damaged in bytes " +
                                         std::to_string(data_begin + kShardPieceBytes)));
  EXPECT_EQ(ReadRange(262'150, 3, &read).code(), StatusCode::kDataLoss);
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

TEST_F(ShardFile, ArraysOutsideOfTheFileAreRefused) {
  const ShardHeader header = HeaderOf(state_);
  const std::string good = ShardHeaderToJson(header);
  const ShardFrame frame = ShardFrame::Make(good.size(), PlaceArrays(header.arrays).end);
  ASSERT_TRUE(ShardHeaderFromJson(good, frame).ok());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bad = good;
    const std::size_t at = bad.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    return ShardHeaderFromJson(bad, frame).status();
  };
  for (const auto& [from, to] : {std::pair{"\"count\":1000", "\"count\":9000000000000000000"},
                                 {"\"count\":1000", "\"count\":-1"},
                                 {"\"count\":1000", "\"count\":3000"},
                                 {"\"array_offset\":0", "\"array_offset\":100000"},
                                 {"\"dtype\":\"float32\"", "\"dtype\":\"float17\""},
                                 {"\"cursor\"", "\"kursor\""},
                                 {"\"begin\":0", "\"begin\":1600"},
                                 {"[20,100]", "[4294967296,4294967296]"},
                                 {"[20,100]", "[-20,-100]"}}) {
    EXPECT_EQ(with(from, to).code(), StatusCode::kDataLoss) << from << " " << to;
  }
  EXPECT_THAT(with("[20,100]", "[20,10]").message(), HasSubstr("tensor q_proj"));
  EXPECT_EQ(ShardHeaderFromJson("[1, 2", frame).status().code(), StatusCode::kDataLoss);
  const ShardFrame larger = ShardFrame::Make(good.size(), frame.data_bytes + 1);
  EXPECT_EQ(ShardHeaderFromJson(good, larger).status().code(), StatusCode::kDataLoss);
}

// As programs of format version 1 wrote it: 24 bytes, JSON, data at a multiple of 64.
TEST_F(ShardFile, Version1IsStillRead) {
  ShardHeader header = HeaderOf(state_);
  const std::string json = ShardHeaderToJson(header);
  const std::uint64_t length = json.size();
  std::string content("MUSTERSH\1\0\0\0\0\0\0\0", 16);
  content.append(reinterpret_cast<const char*>(&length), 8);
  content += json;
  content.resize((content.size() + 63) / 64 * 64, '\0');
  const std::size_t data_begin = content.size();
  const ShardPlaces places = PlaceArrays(header.arrays);
  content.resize(data_begin + places.end, '\0');
  for (std::size_t i = 0; i < places.offsets.size(); ++i) {
    std::memcpy(content.data() + data_begin + places.offsets[i], header.arrays[i].data,
                header.arrays[i].bytes());
  }
  ASSERT_TRUE(WriteFileAtomically(path_, content).ok());
  ShardRecord record{1, "rank-00001.shard", content.size(), "xxh3:0"};
  const std::string refusal = Verify(record).message();
  EXPECT_THAT(refusal, HasSubstr("its manifest says xxh3:0"));
  record.checksum = refusal.substr(refusal.find("xxh3:"), 21);
  State other(9);
  const Status read = ReadAll(record, &other);
  ASSERT_TRUE(read.ok()) << read.ToString();
  EXPECT_EQ(other, state_);
  FlipByte(path_, content.size() - 1);
  EXPECT_EQ(ReadAll(record, &other).code(), StatusCode::kDataLoss);
}

// A full disk in miniature: the kernel refuses to let the file grow.
TEST_F(ShardFile, FullDiskFailsCleanlyAndKeepsTheOldFile) {
  const ShardRecord record = Write();
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{1024, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  state_.weight[0] += 1;
  const auto failed = WriteShard(path_, ImageOf(HeaderOf(state_, 51)));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(failed.ok());
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
  EXPECT_TRUE(Verify(record).ok());
}

TEST_F(ShardFile, DiskWithoutSpaceIsSaidToBeFull) {
  const std::string disk = dir_.path() + "/disk";
  ASSERT_TRUE(MakeDirectories(disk).ok());
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "no privilege to mount a small disk";
  }
  ShardHeader header = HeaderOf(state_);
  std::vector<float> values(100'000, 1.0F);
  header.arrays = {{"u/weight", ElementType::kFloat32, 100'000, values.data(), {}}};
  const auto failed = WriteShard(disk + "/rank-00001.shard", ImageOf(header));
  EXPECT_EQ(failed.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(std::filesystem::is_empty(disk));
  // What fits is written there, although such a disk knows no direct writes.
  const auto fits = WriteShard(disk + "/rank-00001.shard", ImageOf(HeaderOf(state_)));
  EXPECT_TRUE(fits.ok()) << fits.status().ToString();
  EXPECT_TRUE(VerifyShard(disk, *fits).ok());
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

TEST_F(ShardFile, WritingIntoAMissingDirectoryFails) {
  const auto failed = WriteShard(dir_.path() + "/none/rank-00001.shard", ImageOf(HeaderOf(state_)));
  EXPECT_EQ(failed.status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster
