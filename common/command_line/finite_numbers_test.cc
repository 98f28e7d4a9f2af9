#include "common/command_line/finite_numbers.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

bool IsTaken(const std::string& line) {
  CLI::App app;
  double share = 0;
  std::string text;
  CLI::App* verb = app.add_subcommand("verb", "");
  verb->add_option("--share", share, "")->check(CLI::Range(0.0, 1e308));
  verb->add_option("--text", text, "");
  app.parse(line);
  try {
    CheckNumbersAreFinite(app);
  } catch (const CLI::ValidationError& error) {
    EXPECT_STREQ(error.what(), "--share: nan is not a finite number");
    return false;
  }
  return true;
}

TEST(FiniteNumbers, ANumberThatIsNoneIsRefusedByItsOption) {
  EXPECT_FALSE(IsTaken("verb --share nan"));
  EXPECT_TRUE(IsTaken("verb --share 0.5"));
  EXPECT_TRUE(IsTaken("verb --text nan"));
  EXPECT_TRUE(IsTaken("verb"));
}

}  // namespace
}  // namespace muster
