#include "trainer/plan/hardware.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(HardwareTest, EveryKnownDeviceIsFoundByItsNameAndIsComplete) {
  ASSERT_FALSE(KnownDevices().empty());
  for (const std::string& name : KnownDevices()) {
    const auto hardware = FindHardware(name);
    ASSERT_TRUE(hardware) << name;
    EXPECT_GT(hardware->memory_bytes, 20e9) << name;
    EXPECT_GT(hardware->peak_tflops, 50) << name;
    EXPECT_GT(hardware->achievable, 0.3) << name;
    EXPECT_LT(hardware->achievable, 0.9) << name;
    for (const double rate :
         {hardware->memory_rate, hardware->link_rate, hardware->host_rate, hardware->network_rate})
      EXPECT_GT(rate, 1e9) << name;
    EXPECT_FALSE(hardware->source.empty()) << name;
  }
  EXPECT_TRUE(FindHardware("h100-80"));
  EXPECT_FALSE(FindHardware("H100"));
}

TEST(HardwareTest, DevicesAreKnownByWhatTheyTellOfThemselves) {
  const auto name = [](const char* told) {
    const auto found = FindByDeviceName(told);
    return found ? found->name : "";
  };
  EXPECT_EQ(name("NVIDIA H100 80GB HBM3"), "H100-80");
  EXPECT_EQ(name("NVIDIA H200 (compute capability 9.0), attention: cuDNN"), "H200");
  EXPECT_EQ(name("NVIDIA A100-SXM4-80GB"), "A100-80");
  EXPECT_EQ(name("NVIDIA A100-SXM4-40GB"), "A100-40");
  EXPECT_EQ(name("NVIDIA A10"), "A10");
  EXPECT_EQ(name("NVIDIA L40S"), "L40S");
  EXPECT_EQ(name("NVIDIA GeForce RTX 4090"), "RTX-4090");
  EXPECT_EQ(name("CPU, avx512"), "");
}

}  // namespace
}  // namespace muster
