#include "worker/guardian/log_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "common/base/testing/temp_dir.h"
#include "common/base/unique_fd.h"

namespace muster::guardian {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LogFilesTest : public ::testing::Test {
 protected:
  // Opening it for writing blocks until it has a reader.
  std::string Stuck() {
    const std::string path = directory_ + "/stuck.log";
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    return path;
  }

  const TempDirForTest temp_;
  const std::string directory_ = temp_.path();
};

// It ended the guardian, and with it all ranks of the node.
TEST_F(LogFilesTest, WhereNoThreadCanBeStartedTheLogIsNotRead) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto read = [this] {
    const rlimit none{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};  // not even for a stack
    if (::setrlimit(RLIMIT_AS, &none) != 0) ::_exit(2);
    ::_exit(LogFiles().Open(directory_ + "/rank-0.log").ok() ? 1 : 0);
  };
  EXPECT_EXIT(read(), testing::ExitedWithCode(0), "");
}

TEST_F(LogFilesTest, OpensAndReads) {
  LogFiles files;
  const std::string path = directory_ + "/rank-0.log";
  for (const std::string line : {"one\n", "two\n", "three\n"}) {
    const Result<UniqueFd> log = files.Open(path);
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    ASSERT_EQ(::write(log->get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  EXPECT_THAT(files.LastLines(path, 2), ElementsAre("two", "three"));
  const Result<UniqueFd> nowhere = files.Open(directory_ + "/no/rank-0.log");
  EXPECT_THAT(nowhere.status().message(), HasSubstr("/no/rank-0.log"));
}

TEST_F(LogFilesTest, ADiskThatDoesNotAnswerDelaysNoOther) {
  LogFiles files(milliseconds(50));
  const std::string stuck = Stuck();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(files.Open(stuck).status().code(), StatusCode::kDeadlineExceeded);
  // While that one is out nothing else is tried, so that eight ranks wait no longer than one.
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(files.Open(stuck).status().code(), StatusCode::kDeadlineExceeded);
  }
  EXPECT_THAT(files.LastLines(stuck, 20), ElementsAre(HasSubstr("does not answer")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));

  // It answers again: so do we.
  std::ifstream reader(stuck);
  const std::string path = directory_ + "/rank-0.log";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!files.Open(path).ok()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }
}

}  // namespace
}  // namespace muster::guardian
