#include "common/base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "common/base/testing/temp_dir.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

class FilesTest : public testing::Test {
 protected:
  const TempDirForTest temp_;
  const std::string dir_ = temp_.path();
};

TEST_F(FilesTest, WritesWholeFilesWithTheirMode) {
  const std::string path = dir_ + "/a";
  ASSERT_TRUE(WriteFileAtomically(path, "first", 0600).ok());
  ASSERT_TRUE(WriteFileAtomically(path, std::string("se\0cond", 7), 0600).ok());
  EXPECT_EQ(*ReadFile(path), std::string("se\0cond", 7));
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(FilesTest, AFailedWriteLeavesTheFileAndNoRest) {
  const std::string path = dir_ + "/a";
  ASSERT_TRUE(fs::create_directory(path));  // rename over a directory fails
  EXPECT_FALSE(WriteFileAtomically(path, "x").ok());
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(dir_)) ++entries;
  EXPECT_EQ(entries, 1);
}

// Not the file beside it that is written first.
TEST_F(FilesTest, AFailedWriteNamesTheFile) {
  EXPECT_EQ(WriteFileAtomically(dir_ + "/none/a", "x").message(),
            "create " + dir_ + "/none/a: No such file or directory");
}

TEST_F(FilesTest, AFailedReadNamesItsCause) {
  EXPECT_EQ(ReadFile(dir_ + "/none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadFile(dir_).status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(WriteFileAtomically(dir_ + "/big", std::string(100, 'x')).ok());
  EXPECT_EQ(ReadFile(dir_ + "/big", 99).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadFile(dir_ + "/big", 100)->size(), 100u);
  // A file of /proc says it has 0 bytes and has more.
  EXPECT_FALSE(ReadFile("/proc/self/stat")->empty());
}

TEST_F(FilesTest, MakesEveryMissingLevel) {
  EXPECT_TRUE(MakeDirectories(dir_ + "/x/y/z").ok());
  EXPECT_TRUE(MakeDirectories(dir_ + "/x/y/z").ok());
  EXPECT_TRUE(fs::is_directory(dir_ + "/x/y/z"));
  ASSERT_TRUE(WriteFileAtomically(dir_ + "/file", "").ok());
  EXPECT_FALSE(MakeDirectories(dir_ + "/file").ok());
  EXPECT_FALSE(MakeDirectories(dir_ + "/file/below").ok());
  EXPECT_FALSE(MakeDirectories("").ok());
}

// Opening it waited for a writer, and no signal ended that.
TEST_F(FilesTest, APipeIsReadWhileItsWriterWrites) {
  const std::string path = dir_ + "/pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_EQ(::write(fd.get(), "name: x\n", 8), 8);
  });
  const auto text = ReadFile(path);
  writer.join();
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(*text, "name: x\n");
}

}  // namespace
}  // namespace muster
