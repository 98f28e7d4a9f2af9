// Waits until somebody listens on an address, and says which of our own addresses leads there.
//
// Free function; blocks its caller. c10d's client would wait whole seconds between its tries and
// could not be stopped.
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace muster {

// `pause` waits between two tries and returns false to give up (kCancelled). The answer is numeric
// ("127.0.0.1", "fe80::1").
Result<std::string> WaitForPort(const std::string& address, int port, Deadline deadline,
                                const std::function<bool(Duration)>& pause);

}  // namespace muster
