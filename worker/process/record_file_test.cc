#include "worker/process/record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ReadLastLines, GivesTheEndOfALargeFile) {
  const TempDirForTest dir;
  const std::string path = dir / "log";
  {
    std::ofstream out(path);
    for (int i = 0; i < 10000; ++i) out << "line " << i << "\n";
  }
  EXPECT_THAT(ReadLastLines(path, 2), ElementsAre("line 9998", "line 9999"));
  EXPECT_THAT(ReadLastLines(path, 2, 5), ElementsAre("9999"));
}

TEST(ReadLastLines, KeepsALastLineWithoutItsEnd) {
  const TempDirForTest dir;
  std::ofstream(dir / "log") << "one\ntwo";
  EXPECT_THAT(ReadLastLines(dir / "log", 5), ElementsAre("one", "two"));
  EXPECT_THAT(ReadLastLines(dir / "absent", 5), IsEmpty());
}

}  // namespace
}  // namespace muster
