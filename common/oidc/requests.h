// What a client of an issuer sends and is answered: the code flow of a native program with PKCE
// (RFC 6749, 7636, 8252), the device flow (RFC 8628), refreshing (RFC 6749, 6).
//
// The client is a public one: it has no secret of its own. Plain values and pure functions; any
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/oidc/issuer.h"

namespace muster {

// "openid offline_access", the latter where the issuer knows it: it stands for a refresh token.
std::string ScopesFor(const IssuerMetadata& issuer);

// One sign-in by the code flow.
struct CodeLogin {
  std::string client_id;
  std::string redirect_uri;  // http://127.0.0.1:PORT/callback, or the page's
  std::string state;         // random: the answer is to this request
  std::string nonce;         // the token is for this login
  std::string verifier;      // random, 43 to 128 characters: who redeems the code has asked for it
};
// With a random state, nonce and verifier.
Result<CodeLogin> NewCodeLogin(std::string client_id, std::string redirect_uri);
// 32 random bytes, in 43 characters.
Result<std::string> RandomText();
std::string AuthorizationUrl(const IssuerMetadata& issuer, const CodeLogin& login);
std::string CodeChallenge(std::string_view verifier);  // S256
std::string RedeemForm(const CodeLogin& login, const std::string& code);

// The code in a request that a browser makes at the redirect: "GET /callback?code=… HTTP/1.1".
// kNotFound: it is for something else, say an icon. kPermissionDenied: the issuer or the person
// refused, in the issuer's words. kUnauthenticated: it answers another request (state), or is of
// another issuer (RFC 9207).
Result<std::string> CodeFromRequest(std::string_view request_line, const CodeLogin& login,
                                    const std::string& issuer);
// The same of the query of a redirect, which is one: "code=…&state=…".
Result<std::string> CodeFromQuery(std::string_view query, const CodeLogin& login,
                                  const std::string& issuer);

struct DeviceLogin {
  std::string device_code;
  std::string user_code;
  std::string verification_uri;
  std::string verification_uri_complete;  // with the code; may be empty
  Duration expires = Duration::zero();
  Duration interval = std::chrono::seconds(5);  // between two polls
};
std::string DeviceForm(const IssuerMetadata& issuer, const std::string& client_id);
Result<DeviceLogin> ParseDeviceLogin(const IssuerAnswer& answer);
std::string DevicePollForm(const std::string& client_id, const std::string& device_code);

std::string RefreshForm(const std::string& client_id, const std::string& refresh_token);
std::string RevokeForm(const std::string& client_id, const std::string& refresh_token);

struct Tokens {
  std::string id_token;
  std::string refresh_token;  // empty: none was given
};
// The answer of the token endpoint: what a poll of the device flow goes by.
enum class TokenState {
  kGranted,
  kPending,   // the person has not decided
  kSlowDown,  // the same, and polls come too often
  kRefused,   // for good: `why`
};
struct TokenAnswer {
  TokenState state = TokenState::kRefused;
  Tokens tokens;    // granted
  std::string why;  // refused: the issuer's words
};
// kUnavailable: an answer that another try may mend.
Result<TokenAnswer> ParseTokenAnswer(const IssuerAnswer& answer);

}  // namespace muster
