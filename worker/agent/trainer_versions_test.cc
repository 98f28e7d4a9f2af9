#include "worker/agent/trainer_versions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "common/base/testing/temp_dir.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;

constexpr char kAnswer[] =
    R"({"version":"0.1.0","cuda":{"plugin":"0.1.0-ab","runtime":"13.0","driver":"","nccl":"2.28.9"}})";

// A program that prints, in the trainer's place.
class TrainerVersions : public ::testing::Test {
 protected:
  std::string Script(const std::string& body) const {
    const std::string path = dir_ / "trainer";
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    ::chmod(path.c_str(), 0755);
    return path;
  }
  const TempDirForTest dir_;
  const std::map<std::string, std::string> environment_{{"PATH", "/usr/bin:/bin"}};
};

TEST_F(TrainerVersions, AreThoseThatItPrints) {
  const auto stack =
      AskCudaStack(Script("[ \"$*\" = 'version --json' ] && echo '" + std::string(kAnswer) + "'"),
                   environment_, std::chrono::seconds(10));
  ASSERT_TRUE(stack.ok()) << stack.status().ToString();
  EXPECT_EQ(*stack, (CudaStack{"0.1.0-ab", "13.0", "", "2.28.9"}));
}

TEST_F(TrainerVersions, ThatDoNotComeEndAtTheDeadline) {
  const auto stack =
      AskCudaStack(Script("exec sleep 100"), environment_, std::chrono::milliseconds(100));
  EXPECT_EQ(stack.status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(TrainerVersions, PassOnWhatIsMissing) {
  const Status status =
      ParseCudaStack(R"({"version":"0.1.0","cuda":null,"cuda_error":"there is no CUDA plug-in"})")
          .status();
  EXPECT_EQ(status, FailedPrecondition("there is no CUDA plug-in"));
}

TEST_F(TrainerVersions, OfAnOlderTrainerAreRefused) {
  EXPECT_THAT(ParseCudaStack("muster-trainer 0.1.0\n").status().message(),
              HasSubstr("printed no JSON: muster-trainer 0.1.0"));
  EXPECT_THAT(ParseCudaStack("{}").status().message(), HasSubstr("does not support GPUs"));
}

}  // namespace
}  // namespace muster::worker
