#include "worker/guardian/device_locks.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "worker/process/device_lock.h"

namespace muster::guardian {
namespace {

using testing::HasSubstr;

class DeviceLocksTest : public testing::Test {
 protected:
  bool IsLocked(const std::string& device) const {
    return IsRecordLocked(DeviceLockPath(dir_.path(), device));
  }

  const TempDirForTest dir_;
  DeviceLocks locks_{dir_.path(), "job-1", dir_ / "jobs"};
  DeviceLocks other_{dir_.path(), "job-2", dir_ / "jobs"};
};

TEST_F(DeviceLocksTest, ASecondHolderIsRefusedByName) {
  ASSERT_TRUE(locks_.Hold({.devices = {"GPU-1", "GPU-1#2"}}).ok());
  EXPECT_TRUE(IsLocked("GPU-1"));
  EXPECT_TRUE(IsLocked("GPU-1#2"));
  const Status refused = other_.Hold({.devices = {"GPU-0", "GPU-1"}});
  EXPECT_EQ(refused.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(refused.message(),
              HasSubstr("device GPU-1 is still held by job job-1 of another worker (guardian " +
                        std::to_string(::getpid())));
  EXPECT_FALSE(IsLocked("GPU-0")) << "all or none";
  locks_.DropAll();
  EXPECT_EQ(ReadFile(DeviceLockPath(dir_.path(), "GPU-1")).value(), "");
  EXPECT_TRUE(other_.Hold({.devices = {"GPU-0", "GPU-1"}}).ok());
}

TEST_F(DeviceLocksTest, KeepsWhatItHasAndDropsTheOthers) {
  ASSERT_TRUE(locks_.Hold({.devices = {"GPU-0", "GPU-1"}}).ok());
  const std::vector<int> before = locks_.Descriptors({"GPU-1"}).value();
  ASSERT_TRUE(locks_.Hold({.devices = {"GPU-1", "GPU-2"}}).ok());
  EXPECT_EQ(locks_.Descriptors({"GPU-1"}).value(), before);
  EXPECT_FALSE(IsLocked("GPU-0"));
  EXPECT_EQ(locks_.Descriptors({"GPU-0"}).status().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(other_.Hold({.devices = {"GPU-0"}}).ok());
  EXPECT_FALSE(locks_.Hold({.devices = {"GPU-0", "GPU-1", "GPU-3"}}).ok());
  EXPECT_TRUE(IsLocked("GPU-1"));
  EXPECT_FALSE(IsLocked("GPU-2"));
  EXPECT_FALSE(IsLocked("GPU-3"));
}

TEST_F(DeviceLocksTest, ADuplicateKeepsADeviceFromALockThatIsTakenAnew) {
  ASSERT_TRUE(locks_.Hold({.devices = {"GPU-0"}}).ok());
  UniqueFd duplicate(::fcntl(locks_.Descriptors({"GPU-0"}).value()[0], F_DUPFD_CLOEXEC, 0));
  EXPECT_TRUE(locks_.Hold({.devices = {"GPU-0"}}).ok()) << "it has it";
  EXPECT_EQ(locks_.Hold({.devices = {"GPU-0"}, .anew = {"GPU-0"}}).code(),
            StatusCode::kAlreadyExists);
  duplicate.reset();
  EXPECT_FALSE(IsLocked("GPU-0"));
  EXPECT_TRUE(locks_.Hold({.devices = {"GPU-0"}, .anew = {"GPU-0"}}).ok());
}

}  // namespace
}  // namespace muster::guardian
