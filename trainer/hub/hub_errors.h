// What answers of the Hub mean, and when to ask again.
//
// Pure; any thread.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/http_client.h"

namespace muster {

// OK for 2xx. `what` is what was asked for ("org/name", "org/name: config.json"), `page` is where a
// person asks for access. kUnavailable: another try may do better.
Status HubStatus(const HttpClientResponse& response, const std::string& what,
                 const std::string& page, bool with_token);

// How long to wait before try number `attempt` (1 is the second one): doubling from half a second
// to 16 s, or what the answer's Retry-After says, at most five minutes.
Duration RetryPause(int attempt, const std::string& retry_after);

inline constexpr int kMaxAttempts = 6;

}  // namespace muster
