#include "trainer/core/stream_copy.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

namespace muster {
namespace {

TEST(StreamCopy, CopiesAnyRunAndNothingElse) {
  std::vector<char> from(1000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 31 + 1);
  for (const std::size_t to_offset : {0, 1, 63, 64, 65}) {
    for (const std::size_t bytes : {0, 1, 63, 64, 127, 128, 500}) {
      std::vector<char> to(700, 'x');
      StreamCopy(to.data() + to_offset, from.data() + 3, bytes);
      std::vector<char> expected(700, 'x');
      std::memcpy(expected.data() + to_offset, from.data() + 3, bytes);
      EXPECT_EQ(to, expected) << to_offset << " " << bytes;
    }
  }
}

}  // namespace
}  // namespace muster
