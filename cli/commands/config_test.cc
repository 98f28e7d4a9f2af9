// muster config needs no cluster; job_questions_test.cc tests the questions.

#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <sstream>

#include "cli/base/exit_code.h"
#include "cli/commands/testing/commands_testing.h"
#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/job_spec/parse.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

class ConfigTest : public ::testing::Test {
 protected:
  // Answers on standard input are `answers`.
  CommandResult Config(std::vector<std::string> words, const std::string& answers = "") {
    std::istringstream in(answers);
    std::streambuf* const before = std::cin.rdbuf(in.rdbuf());
    words.insert(words.begin(), "config");
    CommandResult result = RunMuster(context_, std::move(words));
    std::cin.rdbuf(before);
    std::cin.clear();
    return result;
  }

  const TempDirForTest temp_;
  const std::string dir_ = temp_.path();
  std::ostringstream out_, err_;
  Terminal terminal_{out_, err_};
  Interrupt interrupt_;
  ClusterClient client_{"nowhere", interrupt_};
  CommandContext context_{client_, terminal_};
};

TEST_F(ConfigTest, ConfigWritesAJobFileOnceAndPrintsTheNextStep) {
  const std::string file = dir_ + "/made.yaml";
  ASSERT_TRUE(Config({file, "--yes", "--nodes", "2"}).ok());
  const auto text = ReadFile(file);
  ASSERT_TRUE(text.ok());
  const auto spec = ParseJobSpec(*text);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->resources.nodes, 2);
  EXPECT_NE(out_.str().find("muster submit " + file), std::string::npos);
  EXPECT_EQ(ExitCodeOf(Config({file, "--yes"}).status()), kExitConflict);
  EXPECT_EQ(*ReadFile(file), *text);
}

TEST_F(ConfigTest, ConfigRefusesWhatItCannotWrite) {
  const std::string file = dir_ + "/made.yaml";
  const CommandResult flag = Config({file, "--nodes", "0"});
  EXPECT_EQ(flag.status().message(), "--nodes: expected a whole number from 1 to 16384, got '0'");
  EXPECT_EQ(Config({file}, "a-name\n").status().code(), StatusCode::kCancelled);
  EXPECT_EQ(ExitCodeOf(Config({file, "--yes", "--name", "a b"}).status()), kExitBadUsage);
  EXPECT_FALSE(fs::exists(file));
}

}  // namespace
}  // namespace muster
