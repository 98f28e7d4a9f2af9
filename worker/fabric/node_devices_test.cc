#include "worker/fabric/node_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<NodeDevice> TwoGpus() {
  return {{.device = {.id = "GPU-a", .kind = "H100", .memory_bytes = 80'000'000'000},
           .cuda_name = "GPU-a",
           .gpu = "GPU-a",
           .gpu_index = 0},
          {.device = {.id = "GPU-b", .kind = "H100", .memory_bytes = 80'000'000'000},
           .cuda_name = "GPU-b",
           .gpu = "GPU-b",
           .gpu_index = 1}};
}

TEST(OfferShares, AGpuHasOneHolderUnlessMoreAreAllowed) {
  EXPECT_EQ(OfferShares(TwoGpus(), 1).value(), TwoGpus());
}

TEST(OfferShares, SharesOfOneGpuAreTakenInTurn) {
  const auto shares = OfferShares(TwoGpus(), 3).value();
  std::vector<std::string> ids;
  for (const NodeDevice& one : shares) {
    ids.push_back(one.device.id);
    EXPECT_TRUE(one.device.shared);
    EXPECT_EQ(one.cuda_name, one.device.id.substr(0, 5));
    EXPECT_EQ(one.gpu, one.cuda_name);
  }
  EXPECT_THAT(ids, ElementsAre("GPU-a", "GPU-b", "GPU-a#2", "GPU-b#2", "GPU-a#3", "GPU-b#3"));
  EXPECT_THAT(DeviceIdsOf(shares, "1"), ElementsAre("GPU-b", "GPU-b#2", "GPU-b#3"));
  EXPECT_THAT(DeviceIdsOf(shares, "0000:3b:00"), IsEmpty());
}

TEST(OfferShares, ANodeHasOnlySoManyDevices) {
  EXPECT_THAT(OfferShares(TwoGpus(), 32).value(), SizeIs(64));
  const Status refused = OfferShares(TwoGpus(), 33).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("would have 66 devices, and may have 64"));
}

TEST(DescribeDevices, CountsThoseThatAreAlike) {
  std::vector<NodeDevice> devices = TwoGpus();
  EXPECT_EQ(DescribeDevices(devices), "2 of H100, 80 GB");
  devices[1].device.fault = "it is lost";
  EXPECT_EQ(DescribeDevices(devices),
            "1 of H100, 80 GB; 1 of H100, 80 GB, no job gets it: it is lost");
  devices = {{.device = {.fake = true, .shared = true}}};
  EXPECT_EQ(DescribeDevices(devices), "1 of an unknown kind, fake, shared");
  EXPECT_EQ(DescribeDevices({}), "");
}

}  // namespace
}  // namespace muster::worker
