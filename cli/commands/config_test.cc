// muster config needs no cluster; what it asks is tested beside cli/job_questions.cc.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "cli/commands/commands.h"
#include "cli/exit_code.h"
#include "common/base/files.h"
#include "common/job_spec/parse.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "config-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string dir_;
  std::ostringstream out_, err_;
  Terminal terminal_{out_, err_};
  Interrupt interrupt_;
  ClusterClient client_{"nowhere", interrupt_};
  CommandContext context_{client_, terminal_};
};

TEST_F(ConfigTest, ConfigWritesAJobFileOnceAndSaysWhatComesNext) {
  ConfigOptions options{
      .file = dir_ + "/made.yaml", .yes = true, .given = {{"nodes", "2"}, {"model", ""}}};
  std::istringstream nothing;
  ASSERT_TRUE(RunConfig(context_, options, nothing).ok());
  const auto text = ReadFile(options.file);
  ASSERT_TRUE(text.ok());
  const auto spec = ParseJobSpec(*text);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->resources.nodes, 2);
  EXPECT_NE(out_.str().find("muster submit " + options.file), std::string::npos);
  EXPECT_EQ(ExitCodeOf(RunConfig(context_, options, nothing).status()), kExitConflict);
  EXPECT_EQ(*ReadFile(options.file), *text);
}

TEST_F(ConfigTest, ConfigRefusesWhatItCannotWrite) {
  std::istringstream in("name of a job\n");
  const std::string file = dir_ + "/made.yaml";
  const CommandResult flag = RunConfig(context_, {.file = file, .given = {{"nodes", "0"}}}, in);
  EXPECT_EQ(flag.status().message(), "--nodes: expected a whole number from 1 to 4096, got '0'");
  EXPECT_FALSE(RunConfig(context_, {.file = file}, in).ok());
  const CommandResult name =
      RunConfig(context_, {.file = file, .yes = true, .given = {{"name", "a b"}}}, in);
  EXPECT_EQ(ExitCodeOf(name.status()), kExitBadUsage);
  EXPECT_FALSE(fs::exists(file));
}

}  // namespace
}  // namespace muster
