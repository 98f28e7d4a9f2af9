// The names of the queue and the priority class of a job that names none.
//
// Pure; any thread.
#pragma once

#include <string>

namespace muster {

inline constexpr char kDefaultQueue[] = "default";
inline constexpr char kNormalClass[] = "normal";

inline std::string QueueName(const std::string& given) {
  return given.empty() ? kDefaultQueue : given;
}
inline std::string ClassName(const std::string& given) {
  return given.empty() ? kNormalClass : given;
}

}  // namespace muster
