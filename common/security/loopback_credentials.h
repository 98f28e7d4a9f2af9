// Credentials that programs of one user show each other on one machine: a certificate for 127.0.0.1
// that is its own authority. The key admits its holder, and nothing else does.
//
// Free function; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace muster {

struct LoopbackCredentials {
  std::string certificate_pem;  // of servers and clients, and what both believe
  std::string key_pem;          // secret
};

// Good for as long as a cluster's authority. `name`: the common name.
Result<LoopbackCredentials> MakeLoopbackCredentials(const std::string& name, std::int64_t now_ms);

}  // namespace muster
