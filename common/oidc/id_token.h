// ID tokens of OpenID Connect: JSON Web Tokens in the compact form (RFC 7515, 7519; OpenID Connect
// Core 1.0, 3.1.3.7), verified. RS256 and ES256 alone are known, each by keys of its own kind, so
// that a token cannot choose how its signature is read.
//
// Pure functions; any thread. Times are milliseconds since the Unix epoch.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/oidc/jwk_set.h"

namespace muster {

inline constexpr std::size_t kMaxTokenBytes = 12 << 10;
inline constexpr std::size_t kMaxSubjectBytes = 255;
// Clocks of issuer and verifier may differ by so much.
inline constexpr Duration kTokenSkew = std::chrono::minutes(5);
// A token is for a login now: an older one, which another may have kept, does not count, although
// issuers make them for hours.
inline constexpr Duration kTokenMaxAge = std::chrono::minutes(10);

struct ExpectedToken {
  std::string issuer;
  std::string client_id;
  // What the token's nonce must be, if it has one: those of the device flow and of a refresh have
  // none.
  std::string nonce;
  std::int64_t now_ms = 0;
};

struct IdClaims {
  std::string subject;  // with the issuer the identity: never the address of mail
  bool has_nonce = false;
  std::int64_t issued_ms = 0;
  std::int64_t expires_ms = 0;
};

// kUnauthenticated says what is wrong with the token; kNotFound: `keys` has no key of its name, so
// the issuer may have new ones.
Result<IdClaims> VerifyIdToken(std::string_view token, const JwkSet& keys,
                               const ExpectedToken& expected);

}  // namespace muster
