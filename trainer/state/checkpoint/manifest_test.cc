#include "trainer/state/checkpoint/manifest.h"
#include "common/base/testing/temp_dir.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "trainer/state/checkpoint/testing/checkpoint_testing.h"

namespace muster {
namespace {

CheckpointManifest Make(Step step, Generation generation, int world_size = 2) {
  CheckpointManifest manifest;
  manifest.step = step;
  manifest.generation = generation;
  manifest.job_id = "0123456789";
  manifest.directory = CheckpointDirectoryName(step, generation);
  manifest.world_size = world_size;
  for (int r = 0; r < world_size; ++r) {
    manifest.shards.push_back({r, ShardFileName(r), 10'000'000'000ull + static_cast<unsigned>(r),
                               "xxh3:0123456789abcdef"});
  }
  return manifest;
}

void Put(const std::string& root, const std::string& directory, const std::string& content) {
  ASSERT_TRUE(MakeDirectories(root + "/" + directory).ok());
  ASSERT_TRUE(WriteFileAtomically(root + "/" + directory + "/manifest.json", content).ok());
}

TEST(Manifest, NamesOfDirectoriesAndShards) {
  EXPECT_EQ(CheckpointDirectoryName(50, 2), "step-00000050-g2");
  EXPECT_EQ(CheckpointDirectoryName(1'234'567'890, 12), "step-1234567890-g12");
  EXPECT_EQ(ShardFileName(1), "rank-00001.shard");
  Step step = 0;
  Generation generation = 0;
  EXPECT_TRUE(ParseCheckpointDirectoryName("step-1234567890-g12", &step, &generation));
  EXPECT_EQ(step, 1'234'567'890);
  EXPECT_EQ(generation, 12);
  for (const char* bad : {"", "step-", "step-5-g2", "step-00000050", "step-00000050-gx",
                          "step-00000050-g2 ", "step-0000005a-g2", "xstep-00000050-g2"}) {
    EXPECT_FALSE(ParseCheckpointDirectoryName(bad, &step, &generation)) << bad;
  }
}

TEST(Manifest, ComesBackAsItWasWritten) {
  const auto manifest = ManifestFromJson(ManifestToJson(Make(50, 2)));
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  EXPECT_EQ(ManifestToJson(*manifest), ManifestToJson(Make(50, 2)));
  EXPECT_EQ(manifest->shards[1].bytes, 10'000'000'001ull);
}

TEST(Manifest, TellsWhatAnEvaluationHasFound) {
  CheckpointManifest evaluated = Make(50, 2);
  evaluated.eval_loss = 0.1 + 0.2;
  EXPECT_EQ(ManifestFromJson(ManifestToJson(evaluated))->eval_loss, 0.1 + 0.2);
  EXPECT_FALSE(ManifestFromJson(ManifestToJson(Make(50, 2)))->eval_loss.has_value());
}

TEST(Manifest, TheBestIsTheFirstOfTheLowestLoss) {
  const auto make = [](Step step, std::optional<double> loss) {
    CheckpointManifest manifest = Make(step, 1);
    manifest.eval_loss = loss;
    return manifest;
  };
  const std::vector<CheckpointManifest> some = {make(40, {}), make(30, 2), make(20, 1),
                                                make(10, 1)};
  ASSERT_NE(BestOf(some), nullptr);
  EXPECT_EQ(BestOf(some)->step, 20);
  EXPECT_EQ(BestOf({make(40, {})}), nullptr);
  EXPECT_EQ(BestOf({}), nullptr);
}

TEST(Manifest, ListsKeepTheirOrder) {
  const auto list = ManifestListFromJson(ManifestListToJson({Make(100, 1), Make(50, 2)}));
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[0].step, 100);
  EXPECT_TRUE(ManifestListFromJson("[]")->empty());
  EXPECT_FALSE(ManifestListFromJson("{}").ok());
}

TEST(Manifest, ReadsNumbersWrittenAsStringsAndIgnoresWhatItDoesNotKnow) {
  const auto manifest = ManifestFromJson(
      R"({"step": "5", "generation": "1", "directory": "step-00000005-g1", "world_size": 1,
          "committed_unix_ms": "7", "shards": [{"rank": 0, "file": "rank-00000.shard",
          "bytes": "123", "checksum": "xxh3:0"}]})");
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  EXPECT_EQ(manifest->shards[0].bytes, 123u);
}

TEST(Manifest, InconsistentOnesAreRefused) {
  const auto refused = [](auto change) {
    CheckpointManifest manifest = Make(50, 2);
    change(manifest);
    return ManifestFromJson(ManifestToJson(manifest)).status().code() == StatusCode::kDataLoss;
  };
  using M = CheckpointManifest;
  EXPECT_TRUE(refused([](M& m) { m.step = 51; }));
  EXPECT_TRUE(refused([](M& m) { m.directory = "../step-00000050-g2"; }));
  EXPECT_TRUE(refused([](M& m) { m.world_size = 3; }));
  EXPECT_TRUE(refused([](M& m) { m.shards[1].rank = 0; }));
  EXPECT_TRUE(refused([](M& m) { m.shards[1].file = "../../etc/passwd"; }));
  EXPECT_FALSE(ManifestFromJson("{").ok());
  EXPECT_FALSE(ManifestFromJson(R"({"format_version": 2})").ok());
}

TEST(Manifest, NewestGenerationComesFirst) {
  const TempDirForTest dir;
  for (const auto& [step, generation] : {std::pair<Step, Generation>{50, 1}, {100, 1}, {75, 2}}) {
    Put(dir.path(), CheckpointDirectoryName(step, generation),
        ManifestToJson(Make(step, generation)));
  }
  Put(dir.path(), "step-00000080-g2", "{ half");
  Put(dir.path(), "step-00000090-g2", ManifestToJson(Make(50, 1)));
  ASSERT_TRUE(MakeDirectories(dir.path() + "/step-00000120-g4").ok());
  ASSERT_TRUE(MakeDirectories(dir.path() + "/notes").ok());
  const auto found = FindManifests(dir.path());
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->manifests.size(), 3u);
  EXPECT_EQ(found->manifests[0].directory, "step-00000075-g2");
  EXPECT_EQ(found->manifests[1].directory, "step-00000100-g1");
  EXPECT_EQ(found->unreadable.size(), 2u);
  EXPECT_EQ(found->newest_generation, 4);
}

TEST(Manifest, OneThatIsAFifoKeepsNoTrainerWaiting) {
  const TempDirForTest dir;
  Put(dir.path(), "step-00000010-g1", ManifestToJson(Make(10, 1)));
  ASSERT_TRUE(MakeDirectories(dir / "step-00000020-g1").ok());
  ASSERT_EQ(::mkfifo((dir / "step-00000020-g1/manifest.json").c_str(), 0600), 0);
  const TimePoint begin = SystemClock().Now();
  const auto found = FindManifests(dir.path());
  EXPECT_LT(SystemClock().Now() - begin, std::chrono::seconds(5));
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->manifests.size(), 1u);
  EXPECT_EQ(found->unreadable.size(), 1u);
}

TEST(Manifest, MissingDirectoryHoldsNothing) {
  const TempDirForTest dir;
  const auto found = FindManifests(dir.path() + "/none");
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->manifests.empty());
}

}  // namespace
}  // namespace muster
