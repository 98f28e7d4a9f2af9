// MUSTER_CHECK: ends the process when an invariant of the program itself is broken. On in every
// build. Expected failures (files, peers, users) are a Status instead.
#pragma once

#include <string_view>

namespace muster {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message);

}  // namespace muster

#define MUSTER_CHECK(condition, message)                                \
  do {                                                                  \
    if (!(condition)) [[unlikely]]                                      \
      ::muster::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
