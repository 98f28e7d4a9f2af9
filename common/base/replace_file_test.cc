#include "common/base/replace_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

TEST(ReplaceFileTest, LeavesTheNewContentAloneInItsFolder) {
  const TempDirForTest dir;
  ASSERT_TRUE(ReplaceFile(dir / "a", "old").ok());
  ASSERT_TRUE(ReplaceFile(dir / "a", "new").ok());
  EXPECT_EQ(ReadFile(dir / "a").value(), "new");
  const auto files = std::filesystem::directory_iterator(dir.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST(ReplaceFileTest, NamesTheFileThatCouldNotBeMade) {
  const TempDirForTest dir;
  const Status status = ReplaceFile(dir / "missing/file", "x");
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("missing/file"), std::string::npos);
}

}  // namespace
}  // namespace muster
