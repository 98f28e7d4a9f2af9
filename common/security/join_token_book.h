// The coordinator's side of join tokens: which were made, and that each is redeemed once.
//
// A file (DIR/security/join-tokens.json) of {"tokens": [{id, secret_sha256, node, made_ms,
// expires_ms, redeemed_ms, redeemed_by}]}, replaced atomically under the lock of its directory, so
// that of two who redeem a token at once, in whatever processes, one wins. Tokens are forgotten a
// week after they expired. Any thread; all functions block. Times are milliseconds since the Unix
// epoch.
#pragma once

#include <cstdint>
#include <functional>
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
};

struct Redemption {
  Identity identity;          // of the node
  bool for_any_node = false;  // the token named no node
  std::int64_t made_ms = 0;   // when the token was made
};

class JoinTokenBook {
 public:
  // `path` is the book's file; it need not exist.
  JoinTokenBook(std::string path, std::string cluster);

  // A token for one node, or for any one where `node` is "". It carries `ca_pem`.
  Result<JoinToken> Make(const std::string& node, Duration lifetime, const std::string& ca_pem,
                         std::int64_t now_ms) const;

  // Whether a redemption that the token allows is allowed otherwise too; asked under the book's
  // lock.
  using Admit = std::function<Status(const Redemption&)>;

  // Who comes in by the token. kUnauthenticated for a token that is unknown or has another secret,
  // alike; kPermissionDenied for one that has expired, was redeemed, or is another node's; what
  // `admit` says where it refuses. Whoever is refused has not used up the token.
  Result<Redemption> Redeem(const std::string& id, const std::string& secret,
                            const std::string& node, std::int64_t now_ms,
                            const Admit& admit = {}) const;

  // Makes a token useless; kNotFound for one that is not there.
  Status Withdraw(const std::string& id) const;

  // Those not forgotten, oldest first.
  Result<std::vector<JoinTokenRecord>> List() const;

 private:
  Result<UniqueFd> Lock() const;
  Result<std::vector<JoinTokenRecord>> Read() const;
  Status Write(const std::vector<JoinTokenRecord>& records) const;

  std::string path_;
  std::string cluster_;
};

}  // namespace muster
