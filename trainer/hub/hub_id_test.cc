#include "trainer/hub/hub_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::string kCommit(40, 'a');

GetEnv Env(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  };
}

TEST(HubCacheDir, IsWhereHuggingFaceHubLooks) {
  EXPECT_EQ(HubCacheDir(Env({{"HF_HUB_CACHE", "/c"}, {"HF_HOME", "/h"}})), "/c");
  EXPECT_EQ(HubCacheDir(Env({{"HF_HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}})), "/h/hub");
  EXPECT_EQ(HubCacheDir(Env({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/u"}})), "/x/huggingface/hub");
  EXPECT_EQ(HubCacheDir(Env({{"HOME", "/u"}})), "/u/.cache/huggingface/hub");
}

class ResolveModelTest : public testing::Test {
 protected:
  Result<std::string> Resolve(const std::string& model) const {
    return ResolveModel(model, Env({{"HF_HUB_CACHE", dir_.path()}}));
  }
  const TempDirForTest dir_;
  const std::string repo_ = dir_ / "models--org--name";
};

TEST_F(ResolveModelTest, TakesADirectoryAsItIs) { EXPECT_EQ(*Resolve(dir_.path()), dir_.path()); }

TEST_F(ResolveModelTest, FindsWhatARevisionWasFetchedAs) {
  fs::create_directories(repo_ + "/refs");
  fs::create_directories(repo_ + "/snapshots/" + kCommit);
  dir_.Write("models--org--name/refs/main", kCommit);
  EXPECT_EQ(*Resolve("org/name"), repo_ + "/snapshots/" + kCommit);
  EXPECT_EQ(*Resolve("org/name@" + kCommit), repo_ + "/snapshots/" + kCommit);
  EXPECT_EQ(Resolve("org/name@v2").status().code(), StatusCode::kNotFound);
}

TEST_F(ResolveModelTest, SaysHowToFetchWhatIsNotThere) {
  const Status status = Resolve("org/name@v2").status();
  EXPECT_THAT(status.message(), HasSubstr("fetch it with: muster-trainer fetch org/name@v2"));
  EXPECT_THAT(status.message(), HasSubstr(dir_.path()));
  EXPECT_THAT(Resolve("a/path/to/nowhere").status().message(),
              HasSubstr("there is no directory a/path/to/nowhere"));
}

TEST_F(ResolveModelTest, TrustsNoRefThatIsNoCommit) {
  fs::create_directories(repo_ + "/refs");
  fs::create_directories(repo_ + "/snapshots/");
  dir_.Write("models--org--name/refs/main", "../../../etc");
  EXPECT_EQ(Resolve("org/name").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster
