// The faults that can be injected for a rehearsal of a recovery (`muster fault`), by their names.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace muster {

// Into one rank of a job. "slow" has a fraction as its argument, "exit" an exit code.
inline constexpr std::array<std::string_view, 9> kRankFaultKinds = {
    "kill", "stop", "cont", "slow", "hang-data", "hang-collective", "nan", "oom", "exit"};
// Into a node.
inline constexpr std::array<std::string_view, 4> kNodeFaultKinds = {"kill-node", "stop-worker",
                                                                    "link-down", "link-up"};

template <std::size_t N>
constexpr bool IsOneOf(std::string_view kind, const std::array<std::string_view, N>& kinds) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

}  // namespace muster
