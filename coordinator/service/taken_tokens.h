// TakenTokens: ID tokens without a nonce that logins were given certificates for. A nonce ties a
// token to its key; one without, of the device flow, is good for the first key that comes with it,
// so that a copy is of no use after the login.
//
// Owned by the login service; the loop's thread, times are arguments. It is in memory alone, so it
// refuses tokens that were made before it began, with kTokenSkew for the issuer's clock: an earlier
// coordinator may have taken them. Bounded by kMax.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/oidc/id_token.h"

namespace muster {

class TakenTokens {
 public:
  static constexpr std::size_t kMax = 16'384;

  explicit TakenTokens(std::int64_t began_unix_ms) : began_unix_ms_(began_unix_ms) {}

  // Takes a verified token for `key`; OK again for the same key. kUnauthenticated: another key has
  // it, or an earlier coordinator may have taken it.
  Status Take(std::string_view token, const IdClaims& claims, const std::string& key,
              std::int64_t now_ms);

 private:
  struct Taken {
    std::string key;
    std::int64_t until_ms = 0;
  };

  const std::int64_t began_unix_ms_;
  // By the hash of what is signed, until they have expired: of an ECDSA signature anybody can make
  // another one for the same text.
  std::map<std::string, Taken> taken_;
};

}  // namespace muster
