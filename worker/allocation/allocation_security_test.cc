#include "worker/allocation/allocation_security.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "common/base/testing/temp_dir.h"
#include "common/security/credentials.h"

namespace muster::worker {
namespace {

TEST(AllocationSecurity, ANodeHasBothCredentialsOfOneAuthority) {
  const TempDirForTest temp;
  ASSERT_TRUE(
      MakeAllocationCredentials({"slurm-7", temp / "security-0", temp / "local", "n1"}).ok());
  const auto node = LoadCredentials(NodeCredentials(temp / "local"));
  const auto coordinator = LoadCredentials(CoordinatorCredentials(temp / "local"));
  ASSERT_TRUE(node.ok()) << node.status().ToString();
  ASSERT_TRUE(coordinator.ok()) << coordinator.status().ToString();
  EXPECT_EQ(node->identity, (Identity{Role::kNode, "n1", "slurm-7"}));
  EXPECT_EQ(coordinator->identity, (Identity{Role::kCoordinator, "n1", "slurm-7"}));
  EXPECT_EQ(node->ca_pem, coordinator->ca_pem);
  RemoveAllocationAuthority(temp / "security-0");
  EXPECT_FALSE(std::filesystem::exists(temp / "security-0"));
}

TEST(AllocationSecurity, OfManyThatComeAtOnceOneMakesTheAuthority) {
  const TempDirForTest temp;
  constexpr int kNodes = 8;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kNodes; ++i) {
    threads.emplace_back([&, i] {
      const std::string node = "n" + std::to_string(i);
      if (!MakeAllocationCredentials({"slurm-7", temp / "security-0", temp / node, node}).ok())
        ++failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  const auto first = LoadCredentials(NodeCredentials(temp / "n0"));
  ASSERT_TRUE(first.ok());
  for (int i = 1; i < kNodes; ++i) {
    const auto other = LoadCredentials(NodeCredentials(temp / ("n" + std::to_string(i))));
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(other->ca_pem, first->ca_pem);
  }
  int left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(temp.path()))
    left += entry.path().filename().string().starts_with("security-") ? 1 : 0;
  EXPECT_EQ(left, 1) << "what lost the race is gone";
}

}  // namespace
}  // namespace muster::worker
