// How fast one thread reads memory: the sum over a buffer that is larger than the caches.
//
//   read_bench [MEBIBYTES [REPETITIONS]]
//
// One JSON object on standard output: the fastest repetition, in GB/s.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "trainer/core/vector_clones.h"
#include "trainer/core/vector_math.h"

namespace muster {
namespace {

// In eight streams far apart, as a product with a vector reads a weight: processors look ahead in
// each. `count` is a multiple of 2^18.
MUSTER_VECTOR_CLONES
float Sum(const float* values, std::int64_t count) {
  constexpr std::int64_t kStreams = 8;
  constexpr std::int64_t kRow = 512;
  const std::int64_t apart = count / kStreams;
  float sum = 0;
  for (std::int64_t at = 0; at < apart; at += kRow) {
    for (std::int64_t stream = 0; stream < kStreams; ++stream) {
      const float* row = values + stream * apart + at;
      sum += SumOver<float>(kRow, [=](std::int64_t i) MUSTER_INLINE_CALL { return row[i]; });
    }
  }
  return sum;
}

int Run(std::int64_t mebibytes, int repetitions) {
  const std::vector<float> values(static_cast<std::size_t>(mebibytes << 18), 1.0F);
  double fastest = 0;
  float sum = 0;
  for (int i = 0; i < repetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    sum += Sum(values.data(), static_cast<std::int64_t>(values.size()));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    fastest = std::max(fastest, static_cast<double>(mebibytes << 20) / took.count() / 1e9);
  }
  std::printf("{\"mebibytes\": %lld, \"gb_per_s\": %.2f, \"sum\": %.1f}\n",
              static_cast<long long>(mebibytes), fastest, static_cast<double>(sum));
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  const long long mebibytes = argc > 1 ? std::atoll(argv[1]) : 1024;
  const int repetitions = argc > 2 ? std::atoi(argv[2]) : 5;
  if (mebibytes < 1 || repetitions < 1) {
    std::fprintf(stderr, "usage: read_bench [MEBIBYTES [REPETITIONS]]\n");
    return 2;
  }
  return muster::Run(mebibytes, repetitions);
}
