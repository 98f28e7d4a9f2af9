#include "coordinator/pid_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class PidFileTest : public ::testing::Test {
 protected:
  std::string Path() const { return dir_ / "coordinator.pid"; }

 private:
  const TempDirForTest dir_;
};

TEST_F(PidFileTest, HoldsThePidOfItsProcess) {
  const auto file = AcquirePidFile(Path());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(*ReadFile(Path()), std::to_string(::getpid()) + "\n");
}

TEST_F(PidFileTest, ASecondHolderIsRefusedWithThePidOfTheFirst) {
  const auto first = AcquirePidFile(Path());
  ASSERT_TRUE(first.ok());
  const auto second = AcquirePidFile(Path(), Duration::zero());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(second.status().message(), HasSubstr("pid " + std::to_string(::getpid())));
}

TEST_F(PidFileTest, AFileLeftBehindIsTakenOver) {
  std::optional<Result<LockedRecord>> first = AcquirePidFile(Path());
  ASSERT_TRUE(first->ok());
  first.reset();
  EXPECT_TRUE(AcquirePidFile(Path()).ok());
}

}  // namespace
}  // namespace muster
