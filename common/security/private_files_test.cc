#include "common/security/private_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

class PrivateFiles : public ::testing::Test {
 protected:
  void Make(mode_t mode) {
    ASSERT_TRUE(WriteFileAtomically(path_, "content").ok());
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  StatusCode CodeOf(Privacy privacy) { return ReadPrivateFile(path_, privacy).status().code(); }

  const TempDirForTest temp_;
  const std::string path_ = temp_ / "file";
};

TEST_F(PrivateFiles, AreReadAsTheyWereWritten) {
  for (const Privacy privacy : {Privacy::kSecret, Privacy::kTrusted}) {
    const std::string content("line\n\0more", 10);
    ASSERT_TRUE(WritePrivateFile(path_, content, privacy).ok());
    EXPECT_EQ(*ReadPrivateFile(path_, privacy), content);
  }
  EXPECT_EQ(ReadPrivateFile(temp_ / "none", Privacy::kSecret).status().code(),
            StatusCode::kNotFound);
}

TEST_F(PrivateFiles, AreRefusedWhenOthersMayReadASecret) {
  for (const mode_t mode : {0640U, 0644U, 0604U, 0601U, 0620U}) {
    Make(mode);
    const auto read = ReadPrivateFile(path_, Privacy::kSecret);
    EXPECT_EQ(read.status().code(), StatusCode::kPermissionDenied) << std::oct << mode;
    EXPECT_NE(read.status().message().find("chmod 600 " + path_), std::string::npos);
  }
}

TEST_F(PrivateFiles, AreRefusedWhenOthersMayChangeThem) {
  Make(0644);
  EXPECT_EQ(CodeOf(Privacy::kTrusted), StatusCode::kOk);
  for (const mode_t mode : {0664U, 0646U}) {
    Make(mode);
    EXPECT_EQ(CodeOf(Privacy::kTrusted), StatusCode::kPermissionDenied) << std::oct << mode;
  }
}

TEST_F(PrivateFiles, AreNoLinksPipesOrDirectories) {
  Make(0600);
  ASSERT_EQ(::symlink(path_.c_str(), (temp_ / "link").c_str()), 0);
  EXPECT_EQ(ReadPrivateFile(temp_ / "link", Privacy::kSecret).status().code(),
            StatusCode::kPermissionDenied);
  ASSERT_EQ(::mkfifo((temp_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(ReadPrivateFile(temp_ / "pipe", Privacy::kSecret).status().code(),
            StatusCode::kPermissionDenied);
  EXPECT_FALSE(ReadPrivateFile(temp_.path(), Privacy::kSecret).ok());
}

TEST_F(PrivateFiles, BelongToTheUserThatReadsThem) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  Make(0600);
  ASSERT_EQ(::chown(path_.c_str(), 12345, 12345), 0);
  const auto read = ReadPrivateFile(path_, Privacy::kSecret);
  EXPECT_EQ(read.status().code(), StatusCode::kPermissionDenied);
  EXPECT_NE(read.status().message().find("12345"), std::string::npos) << read.status().message();
}

TEST_F(PrivateFiles, LieInDirectoriesThatOthersCannotChange) {
  const std::string dir = temp_ / "a/b";
  ASSERT_TRUE(MakePrivateDirectory(dir).ok());
  EXPECT_EQ(std::filesystem::status(dir).permissions(), std::filesystem::perms::owner_all);
  EXPECT_TRUE(MakePrivateDirectory(dir).ok());
  ASSERT_EQ(::chmod(dir.c_str(), 0720), 0);
  EXPECT_EQ(MakePrivateDirectory(dir).code(), StatusCode::kPermissionDenied);
  ASSERT_EQ(::chmod(dir.c_str(), 0700), 0);
  ASSERT_EQ(::symlink(dir.c_str(), (temp_ / "link").c_str()), 0);
  EXPECT_EQ(CheckPrivateDirectory(temp_ / "link").code(), StatusCode::kPermissionDenied);
}

TEST_F(PrivateFiles, ShowWhetherTheyWereReplaced) {
  const FileStamp none = StampOf(path_);
  EXPECT_EQ(none, FileStamp());
  ASSERT_TRUE(WritePrivateFile(path_, "one", Privacy::kSecret).ok());
  const FileStamp one = StampOf(path_);
  EXPECT_NE(one, none);
  EXPECT_EQ(StampOf(path_), one);
  ASSERT_TRUE(WritePrivateFile(path_, "two", Privacy::kSecret).ok());
  EXPECT_NE(StampOf(path_), one);
}

}  // namespace
}  // namespace muster
