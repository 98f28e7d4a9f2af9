#include "worker/health/nvml_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "tests/support/eventually.h"
#include "worker/health/testing/nvml_control.h"

namespace muster::worker {
namespace {

using testing::Contains;
using Kind = NvmlEvent::Kind;

class NvmlWatchTest : public testing::Test {
 protected:
  Result<std::unique_ptr<NvmlWatch>> Start() {
    return NvmlWatch::Start(library_.path(), [this](const NvmlEvent& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
    });
  }
  bool Told(const NvmlEvent& event) {
    return Eventually([&] {
      const std::lock_guard lock(mutex_);
      return std::find(events_.begin(), events_.end(), event) != events_.end();
    });
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }

  NvmlControlForTest library_;
  std::mutex mutex_;
  std::vector<NvmlEvent> events_;
};

TEST_F(NvmlWatchTest, ReportsWhichGpuHadWhichXid) {
  const auto watch = Start();
  ASSERT_TRUE(watch.ok()) << watch.status().ToString();
  EXPECT_EQ((*watch)->gpus(), 2);
  ASSERT_TRUE(library_.Xid(1, 79));
  EXPECT_TRUE(Told({.gpu = 1, .kind = Kind::kXid, .value = 79}));
  EXPECT_EQ(count(), 1u);
}

TEST_F(NvmlWatchTest, ReportsTheDriversRecoveryActionWhenItChanges) {
  const auto watch = Start();
  ASSERT_TRUE(watch.ok());
  library_.RecoveryAction(0, 2);
  // An error makes it look at once.
  ASSERT_TRUE(library_.Xid(0, 79));
  EXPECT_TRUE(Told({.gpu = 0, .kind = Kind::kRecoveryAction, .value = 2}));
  library_.RecoveryAction(0, 0);
  ASSERT_TRUE(library_.Xid(0, 63));
  EXPECT_TRUE(Told({.gpu = 0, .kind = Kind::kRecoveryAction, .value = 0}));
  EXPECT_EQ(count(), 4u);
}

TEST_F(NvmlWatchTest, AnErrorBeforeItsStartIsReported) {
  library_.RecoveryAction(1, 1);
  const auto watch = Start();
  ASSERT_TRUE(watch.ok());
  EXPECT_TRUE(Told({.gpu = 1, .kind = Kind::kRecoveryAction, .value = 1}));
}

TEST_F(NvmlWatchTest, EndsPromptly) {
  auto watch = Start();
  ASSERT_TRUE(watch.ok());
  const Deadline limit = Deadline::After(std::chrono::seconds(5));
  watch->reset();
  EXPECT_FALSE(limit.Expired());
}

TEST(NvmlWatch, AHostWithoutTheLibraryIsDistinguished) {
  EXPECT_EQ(NvmlWatch::Start("libno-such-library.so.1", nullptr).status().code(),
            StatusCode::kNotFound);
  // A library, but not that one.
  EXPECT_EQ(NvmlWatch::Start("libc.so.6", nullptr).status().code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace muster::worker
