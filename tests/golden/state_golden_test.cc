// What a rank leaves and says, as releases' ranks have: a checkpoint, a snapshot segment, and the
// messages of the control socket.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "tests/golden/release_golden.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/state/checkpoint/shard_file.h"
#include "trainer/state/checkpoint/shard_image.h"
#include "trainer/state/snapshot/segment.h"
#include "trainer/supervise/guardian_message.h"
#include "trainer/supervise/supervisor.h"

namespace muster::golden {
namespace {

constexpr char kDirectory[] = "step-00000050-g2";

TrainCursor Cursor() {
  return {.step = 50,
          .samples = 400,
          .tokens = 3200,
          .seed = 7,
          .sample_chain = 0x123456789abcdef0,
          .optimizer_steps = 49,
          .loss_scale = 1024,
          .loss_scale_steps = 3,
          .evaluations = {.step = 40,
                          .loss = 2.5,
                          .best_step = 30,
                          .best_loss = 2.25,
                          .reference_loss = 2.125,
                          .without_better = 1}};
}

AdapterOrigin Adapter() {
  return {.base_model = "/models/base",
          .base_weights = "xxh3:0123456789abcdef",
          .form = R"({"lora":{"rank":8}})"};
}

// One array of each element type, whose elements are 1, 2, 3, 4.
class Arrays {
 public:
  Arrays() {
    for (const ElementType type :
         {ElementType::kFloat32, ElementType::kFloat64, ElementType::kInt64, ElementType::kUint8}) {
      std::vector<char>& memory = memory_.emplace_back(4 * ElementSize(type));
      for (int i = 0; i < 4; ++i) SetElement(type, i, memory.data());
      arrays_.push_back({.name = "block." + std::to_string(arrays_.size()) + "/weight",
                         .type = type,
                         .count = 4,
                         .data = memory.data(),
                         .intervals = {{"q_proj", {4, 2}, 2, 3, 0}}});
    }
  }
  const std::vector<ShardArray>& arrays() const { return arrays_; }

  static void SetElement(ElementType type, int i, char* to) {
    const auto put = [&](auto value) {
      std::memcpy(to + sizeof value * static_cast<std::size_t>(i), &value, sizeof value);
    };
    if (type == ElementType::kFloat32) put(static_cast<float>(i + 1));
    if (type == ElementType::kFloat64) put(static_cast<double>(i + 1));
    if (type == ElementType::kInt64) put(static_cast<std::int64_t>(i + 1));
    if (type == ElementType::kUint8) put(static_cast<std::uint8_t>(i + 1));
  }

 private:
  std::vector<std::vector<char>> memory_;
  std::vector<ShardArray> arrays_;
};

void ExpectArrays(const std::vector<ShardArray>& read) {
  const Arrays expected;
  ASSERT_EQ(read.size(), expected.arrays().size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    const ShardArray& array = expected.arrays()[i];
    EXPECT_EQ(read[i].name, array.name);
    EXPECT_EQ(read[i].type, array.type);
    EXPECT_EQ(read[i].count, array.count);
    EXPECT_EQ(read[i].intervals, array.intervals);
  }
}

void WriteCheckpoint(const std::string& release) {
  const std::string directory = release + "/" + kDirectory;
  std::filesystem::create_directories(directory);
  const Arrays state;
  ShardImage image;
  image.Capture({.job_id = "00c0ffee10",
                 .generation = 2,
                 .rank = 0,
                 .world_size = 1,
                 .parameters = 8,
                 .cursor = Cursor(),
                 .adapter = Adapter(),
                 .arrays = state.arrays()});
  const auto shard = WriteShard(directory + "/rank-00000.shard", image);
  ASSERT_TRUE(shard.ok()) << shard.status().ToString();
  WriteText(directory + "/" + kManifestFile, ManifestToJson({.step = 50,
                                                             .generation = 2,
                                                             .job_id = "00c0ffee10",
                                                             .directory = kDirectory,
                                                             .world_size = 1,
                                                             .shards = {*shard},
                                                             .eval_loss = 2.125}));
}

TEST(StateGolden, CheckpointsOfReleasesAreReadAsTheyWereMeant) {
  ForEachRelease(WriteCheckpoint, [](const std::string& release) {
    const auto manifest = ReadManifest(release, kDirectory);
    ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
    EXPECT_EQ(manifest->step, 50);
    EXPECT_EQ(manifest->generation, 2);
    EXPECT_EQ(manifest->job_id, "00c0ffee10");
    EXPECT_EQ(manifest->world_size, 1);
    EXPECT_EQ(manifest->eval_loss, 2.125);
    ASSERT_EQ(manifest->shards.size(), 1u);
    const auto shard = ShardReader::Open(release + "/" + kDirectory, manifest->shards[0]);
    ASSERT_TRUE(shard.ok()) << "by size and checksum: " << shard.status().ToString();
    const ShardHeader& header = shard->header();
    EXPECT_EQ(header.job_id, "00c0ffee10");
    EXPECT_EQ(header.generation, 2);
    EXPECT_EQ(header.parameters, 8);
    EXPECT_EQ(header.cursor, Cursor());
    EXPECT_EQ(header.adapter, Adapter());
    ExpectArrays(header.arrays);
    const Arrays state;
    for (std::size_t i = 0; i < state.arrays().size(); ++i) {
      const ShardArray& array = state.arrays()[i];
      std::string elements(array.bytes(), '\0');
      PieceCache cache;
      const Status read =
          shard->Read(shard->places().offsets[i], elements.size(), elements.data(), &cache);
      ASSERT_TRUE(read.ok()) << read.ToString();
      EXPECT_EQ(elements, std::string_view(static_cast<const char*>(array.data), array.bytes()));
    }
  });
}

SegmentSpec Spec() {
  return {.name = "g2-rank0",
          .shard_index = 1,
          .shard_count = 3,
          .layout = 77,
          .arrays = Arrays().arrays(),
          .adapter = Adapter()};
}

constexpr std::size_t kHeadBytes = 16 << 10;  // header and directory of a small segment

std::string SegmentHead() {
  const auto segment = Segment::Create(Spec(), 2, false);
  EXPECT_TRUE(segment.ok()) << segment.status().ToString();
  (*segment)->Seal(0, Cursor());
  TrainCursor next = Cursor();
  next.step = 51;
  (*segment)->Seal(1, next);
  (*segment)->Continue(3, {.lineage = 2, .step = 51, .shard_count = 3, .layout = 77});
  std::string head(kHeadBytes, '\0');
  EXPECT_EQ(::pread((*segment)->fd(), head.data(), head.size(), 0),
            static_cast<ssize_t>(head.size()));
  return head;
}

// With slots that hold zeros.
UniqueFd SegmentOf(const std::string& head) {
  std::uint64_t slots[3];  // offset, bytes, stride
  std::memcpy(slots, head.data() + 40, sizeof slots);
  UniqueFd fd(::memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(slots[0] + 3 * slots[2])), 0);
  EXPECT_EQ(::pwrite(fd.get(), head.data(), head.size(), 0), static_cast<ssize_t>(head.size()));
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  return fd;
}

TEST(StateGolden, SegmentsOfReleasesAreReadAsTheyWereMeant) {
  ForEachRelease(
      [](const std::string& release) { WriteText(release + "/segment_head", SegmentHead()); },
      [](const std::string& release) {
        const auto segment = Segment::Map(SegmentOf(ReadText(release + "/segment_head")),
                                          Segment::Access::kReadOnly);
        ASSERT_TRUE(segment.ok()) << segment.status().ToString();
        const Segment& read = **segment;
        EXPECT_EQ(read.spec().name, "g2-rank0");
        EXPECT_TRUE(SameShard(read.spec(), Spec()));
        EXPECT_EQ(read.spec().adapter, Adapter());
        ExpectArrays(read.spec().arrays);
        EXPECT_EQ(read.history(), (SegmentHistory{.lineage = 3, .parent = 2, .parent_step = 51}));
        EXPECT_EQ(read.NewestStep(), 51);
        ASSERT_EQ(read.Labels(0), std::vector<Step>{50});
        const auto cursor = read.Cursor(0, 50);
        ASSERT_TRUE(cursor.ok()) << cursor.status().ToString();
        EXPECT_EQ(*cursor, Cursor());
      });
}

// What a rank says, in the order in which packets_golden_test.cc has what a worker takes it for.
std::vector<nlohmann::ordered_json> Said() {
  auto pair = PacketSocket::Pair();
  EXPECT_TRUE(pair.ok());
  Supervisor rank(pair->second.Release(), {.on_lost = [] {}});
  rank.Formed(2);
  rank.Resumed(2, 40, ResumeSource::kCheckpoint, {{"step-00000050-g1", "damaged"}});
  rank.FirstStep(2, 41);
  rank.ShardWritten({.step = 50, .generation = 2, .directory = kDirectory, .eval_loss = 2.125},
                    {.rank = 1, .file = "rank-00001.shard", .bytes = 123, .checksum = "xxh3:1"});
  rank.CheckpointFailed(2, 50, CheckpointTrouble::kDiskFull, "no room");
  rank.Error(2, {FailureKind::kData, InvalidArgument("row 3")}, 12);
  rank.Note(2, "warning", "3 rows");
  rank.Finished(2, 200, "/out/model");
  rank.Parked(2, 40);
  std::vector<nlohmann::ordered_json> said;
  for (int i = 0; i < 9; ++i) {
    const auto packet = pair->first.Receive(Deadline::After(std::chrono::seconds(5)));
    EXPECT_TRUE(packet.ok());
    if (packet.ok()) said.push_back(nlohmann::ordered_json::parse(packet->data));
  }
  return said;
}

// A worker of the release may still read them: nothing that it knows is gone.
TEST(StateGolden, RanksSayAllThatThoseOfReleasesSaid) {
  const auto write = [](const std::string& release) {
    WriteLines(release + "/rank_messages.jsonl", Said());
  };
  ForEachRelease(write, [](const std::string& release) {
    const auto lines = ReadLines(release + "/rank_messages.jsonl");
    const std::vector<nlohmann::ordered_json> now = Said();
    ASSERT_EQ(lines.size(), now.size());
    for (std::size_t i = 0; i < lines.size(); ++i)
      for (const auto& [key, value] : lines[i].items())
        EXPECT_EQ(now[i].value(key, nlohmann::ordered_json()), value) << key << " of " << lines[i];
  });
}

// Of a guardian that is left running, to a rank of the next release.
TEST(StateGolden, MessagesToRanksOfReleasesMeanWhatTheyMeant) {
  const auto write = [](const std::string& release) {
    WriteLines(release + "/messages_to_ranks.jsonl",
               {{{"type", "assign"},
                 {"generation", 3},
                 {"rendezvous_token", "aabb"},
                 {"environment", {"RANK=1", "WORLD_SIZE=2"}},
                 {"descriptors", nlohmann::ordered_json::array()}},
                {{"type", "park"}, {"generation", 3}, {"reason", "a peer is gone"}},
                {{"type", "stop"}, {"reason", "drained"}},
                {{"type", "fault"}, {"kind", "slow"}, {"argument", "0.3"}}});
  };
  ForEachRelease(write, [](const std::string& release) {
    std::vector<GuardianMessage> read;
    for (const auto& line : ReadLines(release + "/messages_to_ranks.jsonl")) {
      auto message = ParseGuardianMessage({.data = line.dump(), .fds = {}});
      ASSERT_TRUE(message.has_value()) << line;
      read.push_back(*std::move(message));
    }
    ASSERT_EQ(read.size(), 4u);
    const auto& assigned = std::get<Assignment>(read[0]);
    EXPECT_EQ(assigned.generation, 3);
    EXPECT_EQ(assigned.rendezvous_token, "aabb");
    EXPECT_EQ(assigned.environment,
              (std::map<std::string, std::string>{{"RANK", "1"}, {"WORLD_SIZE", "2"}}));
    EXPECT_EQ(std::get<ParkRequest>(read[1]).generation, 3);
    EXPECT_EQ(std::get<ParkRequest>(read[1]).reason, "a peer is gone");
    EXPECT_EQ(std::get<StopRequest>(read[2]).reason, "drained");
    EXPECT_EQ(std::get<FaultRequest>(read[3]).kind, "slow");
    EXPECT_EQ(std::get<FaultRequest>(read[3]).argument, "0.3");
  });
}

}  // namespace
}  // namespace muster::golden
