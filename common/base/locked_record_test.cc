#include "common/base/locked_record.h"

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/replace_file.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

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

}  // namespace
}  // namespace muster
