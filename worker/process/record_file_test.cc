#include "worker/process/record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "common/base/files.h"
#include "common/base/replace_file.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(LockedRecord, ExcludesASecondOwnerUntilTheFirstIsGone) {
  const TempDirForTest dir;
  const std::string path = dir / "record.json";
  EXPECT_FALSE(IsRecordLocked(path));
  {
    auto first = LockedRecord::Acquire(path);
    ASSERT_TRUE(first.ok());
    EXPECT_TRUE(IsRecordLocked(path));
    EXPECT_EQ(LockedRecord::Acquire(path, Duration::zero()).status().code(),
              StatusCode::kAlreadyExists);
  }
  EXPECT_FALSE(IsRecordLocked(path));
  EXPECT_TRUE(LockedRecord::Acquire(path).ok());
}

TEST(LockedRecord, KeepsTheOldContentUntilItIsReplaced) {
  const TempDirForTest dir;
  const std::string path = dir / "record.json";
  ASSERT_TRUE(ReplaceFile(path, "a long first content").ok());
  auto record = LockedRecord::Acquire(path);
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(ReadFile(path).value(), "a long first content");
  ASSERT_TRUE(record->Write("short").ok());
  EXPECT_EQ(ReadFile(path).value(), "short");
}

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
