// The coordinator's side of join tokens: which were made, and that each lets one key in.
//
// A file (DIR/security/join-tokens.json) of {"tokens": [{id, secret_sha256, node, made_ms,
// expires_ms, redeemed_ms, redeemed_by, redeemed_key, certificate}]}, replaced atomically under the
// lock of its directory, so that of two calls that redeem a token at once, in whatever processes,
// one wins. A node that comes again with the same key, since the answer was lost, gets the same
// certificate, until the token expires. Tokens are forgotten a week after that. Any thread; all
// functions block. Times are milliseconds since the Unix epoch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/security/identity.h"
#include "common/security/join_token.h"

namespace muster {

inline constexpr Duration kJoinTokenLifetime = std::chrono::hours(1);
inline constexpr Duration kMaxJoinTokenLifetime = std::chrono::hours(24 * 7);

struct JoinTokenRecord {
  std::string id;
  std::string secret_sha256;  // 64 lower-case hexadecimal digits
  std::string node;           // "": any node
  std::int64_t made_ms = 0;
  std::int64_t expires_ms = 0;
  std::int64_t redeemed_ms = 0;  // 0: not yet
  std::string redeemed_by;       // the node's name
  std::string redeemed_key;      // as JoinClaim has it
  std::string certificate_pem;   // that was given for it; dropped when the token expires
};

// What a node shows to join.
struct JoinClaim {
  std::string id;
  std::string secret;
  std::string node;
  std::string key;  // the SHA-256 of the node's public key (certificate_request.h)
};

struct Redemption {
  Identity identity;          // of the node
  bool for_any_node = false;  // the token named no node
  std::int64_t made_ms = 0;   // when the token was made
  // The node's certificate. To `admit`: the one that it got before; "": it comes for the first
  // time.
  std::string certificate_pem;
};

class JoinTokenRegister {
 public:
  // `path` is the book's file; it need not exist.
  JoinTokenRegister(std::string path, std::string cluster);

  // A token for one node, or for any one where `node` is "". It carries `ca_pem`.
  Result<JoinToken> Make(const std::string& node, Duration lifetime, const std::string& ca_pem,
                         std::int64_t now_ms) const;

  // The certificate for claim number `claim`, or why a redemption that the token allows is not
  // allowed; asked under the book's lock.
  using Admit = std::function<Result<std::string>(std::size_t claim, const Redemption&)>;

  // Who comes in, in the order of the claims; one wait for the disk, however many they are.
  // kUnauthenticated for a token that is unknown or has another secret, alike; kPermissionDenied
  // for one that has expired, was redeemed by another key, or is another node's; what `admit` says
  // where it refuses. A refused node has not used up the token.
  std::vector<Result<Redemption>> Redeem(std::span<const JoinClaim> claims, std::int64_t now_ms,
                                         const Admit& admit) const;

  // Makes a token useless; kNotFound for one that is not there.
  Status Withdraw(const std::string& id) const;

  // Those not forgotten, oldest first.
  Result<std::vector<JoinTokenRecord>> List() const;

 private:
  Result<UniqueFd> Lock() const;
  Result<std::vector<JoinTokenRecord>> Read() const;
  Status Write(const std::vector<JoinTokenRecord>& records) const;
  Result<Redemption> RedeemOne(
      std::vector<JoinTokenRecord>& records, const JoinClaim& claim, std::int64_t now_ms,
      const std::function<Result<std::string>(const Redemption&)>& admit) const;

  std::string path_;
  std::string cluster_;
};

}  // namespace muster
