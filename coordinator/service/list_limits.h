// What lists of jobs and nodes are limited to, and filtered by.
//
// Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "common/base/result.h"

namespace muster {

inline constexpr int kMaxPage = 1000;  // jobs or nodes of one page
inline constexpr int kMaxStates = 16;
inline constexpr std::size_t kMaxNameFilterBytes = 256;

inline Status TooManyStates() {
  return InvalidArgument("a list is filtered by " + std::to_string(kMaxStates) +
                         " states at most; name fewer");
}

// The limit of a request, in which 0 means the maximum.
inline Result<int> PageLimit(int limit, int most = kMaxPage) {
  if (limit >= 0 && limit <= most) return limit == 0 ? most : limit;
  return InvalidArgument("limit " + std::to_string(limit) + " is not from 0 to " +
                         std::to_string(most));
}

// No states: any.
template <typename States, typename State>
bool HasState(const States& states, State state) {
  return states.empty() ||
         std::find(states.begin(), states.end(), static_cast<int>(state)) != states.end();
}

}  // namespace muster
