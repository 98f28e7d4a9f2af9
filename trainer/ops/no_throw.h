// NoThrow: for destructors whose waits may throw what a device reports.
//
// Mostly such an object goes because of that very error, which has been thrown before and is the
// rank's failure; a second exception would end the process before it is reported. An error of a
// device stays, so where it is the first one the next use of the device reports it. Any thread.
#pragma once

#include <cstdio>
#include <exception>

namespace muster {

// Runs `body`; what it throws goes to the rank's log with `what` before it.
template <typename Body>
void NoThrow(const char* what, const Body& body) noexcept {
  try {
    body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "muster-trainer: %s: %s\n", what, error.what());
  }
}

}  // namespace muster
