#include "common/base/switch.h"

#include <gtest/gtest.h>

#include <string>

namespace muster {
namespace {

TEST(ReadSwitch, TakesTheUsualWordsInAnyCase) {
  for (const char* value : {"1", "true", "True", "TRUE", "yes", "on", "ON"}) {
    const Result<bool> read = ReadSwitch("MUSTER_X", value);
    ASSERT_TRUE(read.ok()) << value;
    EXPECT_TRUE(*read) << value;
  }
  for (const char* value : {"", "0", "false", "False", "no", "off"}) {
    const Result<bool> read = ReadSwitch("MUSTER_X", value);
    ASSERT_TRUE(read.ok()) << value;
    EXPECT_FALSE(*read) << value;
  }
  EXPECT_FALSE(*ReadSwitch("MUSTER_X", nullptr));
}

TEST(ReadSwitch, AnythingElseIsAnErrorThatNamesTheVariable) {
  for (const char* value : {"2", "tru", " 1", "enabled"}) {
    const Status refused = ReadSwitch("MUSTER_X", value).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << value;
    EXPECT_EQ(refused.message(), "MUSTER_X=" + std::string(value) +
                                     " is neither on nor off: set it to 1 or 0, or unset it");
  }
}

}  // namespace
}  // namespace muster
