// Ranges of work over the threads of the host: ATen's, without its headers, which kernels do
// without.
#pragma once

#include <cstdint>
#include <functional>

namespace muster {

int HostThreads();

// Cuts [0, count) into a range for each thread, of `grain` at least, and returns when all are done.
// What a range throws is thrown here. Within a range it makes a single one.
void OverRanges(std::int64_t count, std::int64_t grain,
                const std::function<void(std::int64_t begin, std::int64_t end)>& range);

}  // namespace muster
