#include "common/base/regular_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

TEST(RegularFile, IsReadWholeUpToALimit) {
  const TempDirForTest dir;
  std::ofstream(dir / "file") << std::string(100'000, 'x');
  EXPECT_EQ(ReadRegularFile(dir / "file").value(), std::string(100'000, 'x'));
  EXPECT_EQ(ReadRegularFile(dir / "file", 99'999).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadRegularFile(dir / "missing").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(ReadRegularFile(dir.path()).ok());
}

TEST(RegularFile, APipeIsRefusedAtOnceWithAWriterOrWithout) {
  const TempDirForTest dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("pipe", (dir / "link").c_str()), 0);
  EXPECT_THAT(ReadRegularFile(dir / "link").status().message(), HasSubstr("is no regular file"));
  const UniqueFd writer(::open((dir / "pipe").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::write(writer.get(), "x", 1), 1);
  EXPECT_EQ(ReadRegularFile(dir / "pipe").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(OpenRegularFile(dir / "link", O_NOFOLLOW).ok());
}

}  // namespace
}  // namespace muster
