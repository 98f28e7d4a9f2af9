#include "trainer/ops/host_threads.h"

#include <ATen/Parallel.h>

namespace muster {

int HostThreads() { return at::get_num_threads(); }

void OverRanges(std::int64_t count, std::int64_t grain,
                const std::function<void(std::int64_t begin, std::int64_t end)>& range) {
  at::parallel_for(0, count, grain, range);
}

}  // namespace muster
