#include "common/command_line/help_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class HelpWordsTest : public testing::Test {
 protected:
  HelpWordsTest() { WriteHelpInWords(app_); }

  CLI::App app_{"does something", "tool"};
  std::string text_, word_ = "info";
  int number_ = 0;
  double amount_ = 0.5;
  bool any_ = false;
  std::vector<std::string> list_;
};

TEST_F(HelpWordsTest, TypesAndLimitsAreWords) {
  app_.add_option("--slots", number_, "Ranks")->check(CLI::Range(1, 64));
  app_.add_option("--share", amount_, "Part")->check(CLI::Range(0.0, 1.0));
  app_.add_option("--rows", number_, "Rows")->check(CLI::PositiveNumber);
  app_.add_option("--rank", number_, "Rank")->check(CLI::NonNegativeNumber);
  app_.add_option("--lease", amount_, "Lease")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"ms", 1e-3}, {"s", 1}, {"m", 60}}))
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  app_.add_option("--set", list_, "Override")->allow_extra_args(false);
  const std::string help = app_.help();
  EXPECT_THAT(help, HasSubstr("  --slots N                       Ranks (1 to 64)\n"));
  EXPECT_THAT(help, HasSubstr("--share NUMBER                  Part (0 to 1)\n"));
  EXPECT_THAT(help, HasSubstr("--rows N                        Rows (above 0)\n"));
  EXPECT_THAT(help, HasSubstr("--rank N                        Rank (0 or more)\n"));
  EXPECT_THAT(help,
              HasSubstr("--lease TIME                    Lease [default: 0.5s] (0.1s to 1h)\n"));
  EXPECT_THAT(help, HasSubstr("--set TEXT ..."));
  for (const char* raw : {"INT", "FLOAT", "UNIT", " in [", "POSITIVE", "NONNEGATIVE"})
    EXPECT_THAT(help, Not(HasSubstr(raw)));
}

TEST_F(HelpWordsTest, ASetIsNamedOnce) {
  const CLI::IsMember levels({"info", "warn"});
  app_.add_option("--one", text_, "How much to log")->check(levels);
  app_.add_option("--two", text_, "info or warn")->check(levels);
  EXPECT_THAT(app_.help(), HasSubstr("How much to log (one of: info, warn)\n"));
  EXPECT_THAT(app_.help(), HasSubstr("info or warn\n"));
  EXPECT_THAT(app_.help(), Not(HasSubstr("{")));
}

TEST_F(HelpWordsTest, WhatIsRequiredAndWhatVariableGivesIt) {
  CLI::Option* node = app_.add_option("--node", text_, "Name")->required()->envname("NODE");
  app_.add_flag("--any", any_, "All")->excludes(node);
  app_.add_option("--to", word_, "Where")->option_text("IP:PORT")->capture_default_str();
  EXPECT_THAT(app_.help(), HasSubstr("Name (required; not with --any; $NODE)\n"));
  EXPECT_THAT(app_.help(), HasSubstr("All (not with --node)\n"));
  EXPECT_THAT(app_.help(), HasSubstr("--to IP:PORT                    Where [default: info]\n"));
}

TEST_F(HelpWordsTest, AFlagThatMayHaveAValueShowsTheOneThatItHasWithout) {
  app_.add_flag("--grace{25}", text_, "Seconds");
  EXPECT_THAT(app_.help(), HasSubstr("  --grace[=25]                    Seconds\n"));
}

TEST_F(HelpWordsTest, ACommandNamesTheOptionsThatAllCommandsTake) {
  app_.set_version_flag("--version", "1");
  app_.add_option("--dir", text_, "Directory");
  CLI::App* group = app_.add_subcommand("group", "Some");
  group->fallthrough();
  CLI::App* command = group->add_subcommand("go", "Goes");
  command->fallthrough();
  EXPECT_THAT(command->help(), HasSubstr("Global options (tool --help): --dir\n"));
  command->fallthrough(false);
  EXPECT_THAT(command->help(),
              HasSubstr(": --dir; place them before the command: tool OPTIONS group go ...\n"));
  EXPECT_THAT(app_.help(), Not(HasSubstr("Global options")));
  command->add_option("--dir", word_, "Its own");
  EXPECT_THAT(command->help(), Not(HasSubstr("Global options")));
}

}  // namespace
}  // namespace muster
