// What the tests of gangs on one host share: the two ways in which their ranks exchange data, and
// how long a step of a test may take. Header of tests only; the tests lie in its namespace.
#pragma once

#include <chrono>
#include <cstdlib>

#include "trainer/comm/group/host_communicator.h"
#include "trainer/comm/group/testing/gang_testing.h"
#include "trainer/comm/rank_env.h"
#include "trainer/comm/transport/shared/unix_mesh.h"

namespace muster::testing {

inline Deadline Soon() { return Deadline::After(std::chrono::seconds(20)); }

enum class Way { kSharedMemory, kSockets };
inline constexpr auto kWays = {Way::kSharedMemory, Way::kSockets};

// Of this process and those that it forks.
inline void GoBy(Way way) {
  if (way == Way::kSockets) setenv(kShmDisableVariable, "1", 1);
}

}  // namespace muster::testing
