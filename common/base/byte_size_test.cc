#include "common/base/byte_size.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(ByteSize, ReadsDecimalAndBinaryUnits) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"5GB", 5'000'000'000},
                                                        {"5gb", 5'000'000'000},
                                                        {"1.5 GB", 1'500'000'000},
                                                        {"200MB", 200'000'000},
                                                        {"10KB", 10'000},
                                                        {"2TB", 2'000'000'000'000},
                                                        {"1KiB", 1024},
                                                        {"3MiB", 3 << 20},
                                                        {"4GiB", std::int64_t{4} << 30},
                                                        {"1TiB", std::int64_t{1} << 40},
                                                        {"123456", 123456},
                                                        {"7B", 7}};
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(ParseByteSize(text), bytes) << text;
}

TEST(ByteSize, RefusesWhatIsNone) {
  for (const char* text : {"", "GB", "5 apples", "-5GB", "0", "0.2B", "1e400", "nan", "inf", "5GB!",
                           "9999999TB", "0x10", "5 G B"}) {
    EXPECT_FALSE(ParseByteSize(text)) << text;
  }
}

TEST(ByteSize, IsShownWithThreeDigits) {
  EXPECT_EQ(FormatByteSize(17), "17 B");
  EXPECT_EQ(FormatByteSize(999), "999 B");
  EXPECT_EQ(FormatByteSize(1'000), "1 kB");
  EXPECT_EQ(FormatByteSize(2'471'645'608), "2.47 GB");
  EXPECT_EQ(FormatByteSize(999'900'000), "1 GB");
}

}  // namespace
}  // namespace muster
