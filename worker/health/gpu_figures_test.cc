#include "worker/health/gpu_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/health/testing/nvml_control.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::Field;

TEST(GpuReader, ReportsTheFiguresOfTheGpus) {
  NvmlControlForTest library;
  auto reader = GpuReader::Open(library.path());
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  const GpuFigures first{.index = 0,
                         .uuid = "GPU-00000000-aaaa",
                         .utilization = 0.75,
                         .memory_used_bytes = 3e9,
                         .memory_bytes = 8e9,
                         .power_watts = 250.5,
                         .temperature_celsius = 61,
                         .sm_clock_hertz = 1.98e9};
  const GpuFigures second{
      .index = 1, .uuid = "GPU-00000001-aaaa", .memory_used_bytes = 3e9, .memory_bytes = 8e9};
  EXPECT_THAT((*reader)->Read(), ElementsAre(first, second)) << "the second one tells less";
}

TEST(GpuReader, AHostWithoutTheLibraryIsDistinguished) {
  EXPECT_EQ(GpuReader::Open("libno-such-library.so.1").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(GpuReader::Open("libc.so.6").status().code(), StatusCode::kUnimplemented);
}

TEST(GpuMonitor, ReadsInTheBackgroundUntilItGoes) {
  NvmlControlForTest library;
  EventLoop loop;
  {
    GpuMonitor monitor(loop, library.path(), std::chrono::milliseconds(1));
    Timer look(loop);
    std::function<void()> wait = [&] {
      if (!monitor.newest().empty()) return loop.Stop();
      look.Start(std::chrono::milliseconds(1), wait);
    };
    Timer limit(loop);
    limit.Start(std::chrono::seconds(5), [&] { loop.Stop(); });
    loop.Post([&] {
      monitor.Start();
      wait();
    });
    loop.Run();
    EXPECT_THAT(monitor.newest(),
                ElementsAre(Field(&GpuFigures::index, 0), Field(&GpuFigures::index, 1)));
  }
}

TEST(GpuMonitor, WithoutALibraryThereIsNothing) {
  EventLoop loop;
  GpuMonitor monitor(loop, "", std::chrono::seconds(1));
  monitor.Start();
  EXPECT_TRUE(monitor.newest().empty());
}

}  // namespace
}  // namespace muster::worker
