#include "trainer/hub/hub_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

TEST(WantedFiles, AreThoseThatAModelIsLoadedFrom) {
  EXPECT_THAT(
      WantedFiles({".gitattributes", "README.md", "LICENSE", "config.json",
                   "model-00001-of-00002.safetensors", "model.safetensors.index.json",
                   "pytorch_model.bin", "pytorch_model.bin.index.json",
                   "original/consolidated.00.pth", "original/params.json", "onnx/model.onnx",
                   "model.gguf", "tokenizer.json", "tokenizer.model", "chat_template.jinja"},
                  {}),
      ElementsAre("config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json",
                  "tokenizer.json", "tokenizer.model", "chat_template.jinja"));
}

TEST(WantedFiles, AreNeverPickledWeightsThatNothingLoads) {
  const std::vector<std::string> pickled = {"config.json", "pytorch_model.bin",
                                            "pytorch_model.bin.index.json", "onnx/x.safetensors"};
  EXPECT_THAT(WantedFiles(pickled, {}), ElementsAre("config.json"));
  EXPECT_THAT(WantedFiles(pickled, {"*.bin"}), ElementsAre("pytorch_model.bin"));
  EXPECT_FALSE(HasSafetensors(pickled));
  EXPECT_TRUE(HasSafetensors({"model.safetensors"}));
}

TEST(WantedFiles, AreWhatPatternsNameWhereThereAreSome) {
  EXPECT_THAT(WantedFiles({"config.json", "original/params.json", "original/x.pth", "model.gguf"},
                          {"original/*", "*.gguf"}),
              ElementsAre("original/params.json", "original/x.pth", "model.gguf"));
}

TEST(SafeFileName, LeadsNowhereElse) {
  EXPECT_TRUE(IsSafeFileName("a/b..c/.d"));
  for (const char* name : {"", "/a", "../a", "a/../b", "a//b", "a/", "./a", "a\\b", "a\nb"}) {
    EXPECT_FALSE(IsSafeFileName(name)) << name;
  }
}

TEST(Etag, LosesQuotesAndWeakness) {
  EXPECT_EQ(NormalizedEtag("\"abc\""), "abc");
  EXPECT_EQ(NormalizedEtag("W/\"abc-1\""), "abc-1");
  EXPECT_EQ(NormalizedEtag("\"../../x\""), "");
  EXPECT_EQ(NormalizedEtag("\"..\""), "");
}

// git hash-object and sha256sum of "hello\n".
const char kGit[] = "ce013625030ba8dba906f756967f9e9ca394464a";
const char kSha256[] = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

TEST(ContentCheck, KnowsBothKindsOfChecksums) {
  for (const char* etag : {kGit, kSha256}) {
    ContentCheck right(etag, 6), wrong(etag, 6);
    right.Add("hel");
    right.Add("lo\n");
    wrong.Add("hellO\n");
    EXPECT_TRUE(right.Matches());
    EXPECT_FALSE(wrong.Matches());
  }
}

TEST(ContentCheck, GoesOnFromAFile) {
  const TempDirForTest dir;
  const std::string path = dir.Write("part", "helXXX");
  ContentCheck check(kSha256, 6);
  ASSERT_TRUE(check.AddFile(path, 3).ok());
  check.Add("lo\n");
  EXPECT_TRUE(check.Matches());
  EXPECT_FALSE(ContentCheck(kSha256, 6).AddFile(path, 7).ok());
}

TEST(ContentCheck, NeedsTheSizeForGitsChecksumOnly) {
  ContentCheck git(kGit, -1), right(kSha256, -1), wrong(kSha256, -1);
  git.Add("hello\n");
  right.Add("hello\n");
  wrong.Add("hellO\n");
  EXPECT_TRUE(git.Matches());
  EXPECT_TRUE(right.Matches());
  EXPECT_FALSE(wrong.Matches());
}

TEST(ContentCheck, PassesWhatItCannotCheck) {
  ContentCheck check("abc-1", 6);
  check.Add("anything");
  EXPECT_TRUE(check.Matches());
}

}  // namespace
}  // namespace muster
