#include "coordinator/service/taken_tokens.h"

#include <chrono>

#include "common/base/wall_time.h"
#include "common/security/encoding.h"

namespace muster {
namespace {

constexpr std::int64_t kSkewMs =
    std::chrono::duration_cast<std::chrono::milliseconds>(kTokenSkew).count();

}  // namespace

Status TakenTokens::Take(std::string_view token, const IdClaims& claims, const std::string& key,
                         std::int64_t now_ms) {
  if (claims.has_nonce) return OkStatus();
  if (claims.issued_ms < began_unix_ms_ - kSkewMs)
    return Unauthenticated("the ID token is refused: it was made at " + UtcTime(claims.issued_ms) +
                           ", before this coordinator began, and may have been used for another "
                           "login\n  next: muster login, which gets a new one");
  std::erase_if(taken_, [now_ms](const auto& each) { return each.second.until_ms <= now_ms; });
  if (taken_.size() >= kMax)
    return ResourceExhausted("too many log in at once; try again in some minutes");
  const std::string signed_text(token.substr(0, token.rfind('.')));
  const auto [taken, fresh] =
      taken_.emplace(Sha256(signed_text), Taken{key, claims.expires_ms + kSkewMs});
  if (fresh || taken->second.key == key) return OkStatus();
  return Unauthenticated("the ID token is refused: another login has used it");
}

}  // namespace muster
