// Join tokens: one string that lets one node into the cluster, once, until it expires.
//
//   muster-join-v1.BASE64URL
//
// of the id (8 bytes), the secret (32), the expiry (8, big-endian), the authority's certificate
// (DER), and eight bytes of SHA-256 over all that, by which a token that was not copied whole is
// seen at once. The node believes a coordinator by the certificate; the coordinator believes the
// node by the secret, of which it keeps only a hash (join_token_register.h).
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace muster {

inline constexpr char kJoinTokenPrefix[] = "muster-join-v1.";

struct JoinToken {
  std::string id;               // 16 lower-case hexadecimal digits; no secret
  std::string secret;           // 32 bytes
  std::int64_t expires_ms = 0;  // milliseconds since the Unix epoch
  std::string cluster;          // the authority's
  std::string ca_pem;

  friend bool operator==(const JoinToken&, const JoinToken&) = default;
};

Result<std::string> EncodeJoinToken(const JoinToken& token);

// kInvalidArgument for what is no whole token. Blanks around it are allowed. That it has not
// expired is for the caller to see.
Result<JoinToken> ParseJoinToken(std::string_view text);

// What a node gets that is to join: the token, and where to take it. As text three words on one
// line, "muster-join-v1.... join=IP:PORT coordinator=IP:PORT"; the last two may be left out.
struct Invitation {
  std::string token;
  std::string join_address;  // of the coordinator's --join-listen
  std::string coordinator;   // its --tls-listen

  friend bool operator==(const Invitation&, const Invitation&) = default;
};

std::string InvitationText(const Invitation& invitation);
// kInvalidArgument for other words. The token is not looked at.
Result<Invitation> ParseInvitation(std::string_view text);

}  // namespace muster
