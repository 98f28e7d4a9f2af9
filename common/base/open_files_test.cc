#include "common/base/open_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/base/unique_fd.h"

namespace muster {
namespace {

TEST(OpenFiles, AStoreOfMoreRanksThanTheSoftLimitHasADescriptorForEach) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  constexpr rlim_t kSoft = 64;
  ASSERT_GT(before.rlim_max, 2 * kSoft) << "this machine allows no more anyway";
  const rlimit low{kSoft, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);

  RaiseOpenFilesLimit();
  std::vector<UniqueFd> open;
  for (rlim_t i = 0; i < kSoft; ++i) {
    open.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(open.back().valid()) << i;
  }
  ASSERT_TRUE(OpenFilesLimitBefore().has_value());
  EXPECT_EQ(OpenFilesLimitBefore()->rlim_cur, kSoft);
  RaiseOpenFilesLimit();
  EXPECT_EQ(OpenFilesLimitBefore()->rlim_cur, kSoft) << "there is nothing left to raise";

  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace muster
