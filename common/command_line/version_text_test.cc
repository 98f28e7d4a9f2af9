#include "common/command_line/version_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/version.h"

namespace muster {
namespace {

TEST(VersionTextTest, NamesTheProgramTheVersionAndTheCommitWhereItIsKnown) {
  const std::string text = VersionText("muster-worker");
  const std::string start = std::string("muster-worker ") + kVersion;
  ASSERT_TRUE(text.starts_with(start)) << text;
  EXPECT_THAT(text.substr(start.size()),
              testing::MatchesRegex("( \\(commit [0-9A-Za-z._+-]+\\))?"));
}

}  // namespace
}  // namespace muster
