#include "worker/health/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::uint64_t kGiB = 1 << 30;
const TimePoint kStart = TimePoint() + 1h;

MemoryReading Reading(double stalled, std::uint64_t available_gib) {
  return {.stalled_percent = stalled,
          .available_bytes = available_gib * kGiB,
          .total_bytes = 100 * kGiB};
}

TEST(HostMemory, ReadsTheKernelsFigures) {
  EXPECT_EQ(ParseStalledPercent("some avg10=50.00 avg60=1.00 avg300=0.10 total=9\n"
                                "full avg10=12.34 avg60=1.00 avg300=0.10 total=9\n"),
            12.34);
  EXPECT_EQ(ParseStalledPercent("some avg10=50.00 avg60=1.00 avg300=0.10 total=9\n"), std::nullopt);
  EXPECT_EQ(ParseStalledPercent("full avg10=x"), std::nullopt);
  EXPECT_EQ(ParseStalledPercent(""), std::nullopt);
  MemoryReading reading;
  ParseAvailable("MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    250 kB\n", &reading);
  EXPECT_EQ(reading.total_bytes, 1000u << 10);
  EXPECT_EQ(reading.available_bytes, 250u << 10);
}

TEST(HostMemory, ThisHostHasSome) {
  const MemoryReading reading = ReadHostMemory();
  EXPECT_GT(reading.total_bytes, 0u);
  EXPECT_LE(reading.available_bytes, reading.total_bytes);
}

TEST(HostMemory, PressureBeginsWithStallsOrWithLittleAvailable) {
  EXPECT_FALSE(MemoryPressure().Update(Reading(9.9, 50), kStart));
  EXPECT_TRUE(MemoryPressure().Update(Reading(10, 50), kStart));
  EXPECT_FALSE(MemoryPressure().Update(Reading(0, 2), kStart));
  EXPECT_TRUE(MemoryPressure().Update(Reading(0, 1), kStart));
  EXPECT_FALSE(MemoryPressure().Update({}, kStart)) << "nothing is known";
  EXPECT_TRUE(
      MemoryPressure().Update({.available_bytes = kGiB, .total_bytes = 100 * kGiB}, kStart));
}

TEST(HostMemory, PressureIsOverWhenReliefHasLasted) {
  MemoryPressure pressure;
  ASSERT_TRUE(pressure.Update(Reading(20, 50), kStart));
  EXPECT_THAT(pressure.detail(), HasSubstr("50.0 of 100.0 GiB available"));
  EXPECT_THAT(pressure.detail(), HasSubstr("20 %"));
  EXPECT_TRUE(pressure.Update(Reading(5, 50), kStart + 20s)) << "not yet below the lower threshold";
  EXPECT_TRUE(pressure.Update(Reading(1, 3), kStart + 40s)) << "nor with so little available";
  EXPECT_TRUE(pressure.Update(Reading(1, 50), kStart + 50s));
  EXPECT_TRUE(pressure.Update(Reading(3, 50), kStart + 55s)) << "a relapse";
  EXPECT_TRUE(pressure.Update(Reading(1, 50), kStart + 60s));
  EXPECT_TRUE(pressure.Update(Reading(1, 50), kStart + 69s));
  EXPECT_FALSE(pressure.Update(Reading(1, 50), kStart + 70s));
  EXPECT_FALSE(pressure.Update(Reading(5, 50), kStart + 71s));
}

}  // namespace
}  // namespace muster::worker
