// Who a certificate speaks for: a role and a name in one cluster.
//
// In a certificate the identity is the one URI among the subject alternative names (RFC 5280,
// 4.2.1.6): muster://CLUSTER/ROLE/NAME. Nothing else in a certificate identifies its holder.
//
// Value types and pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace muster {

enum class Role {
  kAdmin,        // a person's or a script's muster command: everything that clients may do
  kCoordinator,  // serves clients, workers and scrapers
  kNode,         // a worker: speaks for its own node and nothing else
  kScraper,      // reads metrics
  kUser,         // a user of the cluster (docs/users.md)
};
inline constexpr Role kRoles[] = {Role::kAdmin, Role::kCoordinator, Role::kNode, Role::kScraper,
                                  Role::kUser};

struct Identity {
  Role role = Role::kAdmin;
  std::string name;     // of a node the node's name
  std::string cluster;  // as given to `muster init --cluster`

  friend bool operator==(const Identity&, const Identity&) = default;
};

// "admin", "coordinator", "node", "scraper", "user".
std::string_view RoleWord(Role role);
Result<Role> ParseRole(std::string_view word);

// OK for what may stand in an identity: 1 to 63 letters, digits, '-', '_' and '.', not beginning
// with '.'. `what` begins the message: "node name".
Status CheckName(std::string_view what, std::string_view name);
Status CheckIdentity(const Identity& identity);

// "muster://lab/node/n7". Precondition of the first: CheckIdentity is OK.
std::string IdentityUri(const Identity& identity);
Result<Identity> ParseIdentityUri(std::string_view uri);

// What TLS clients verify instead of a host's name (gRPC's ssl_target_name_override), since nothing
// of Muster resolves names: the DNS name in the certificates of those that serve; "" for the
// others.
inline constexpr char kCoordinatorServerName[] = "coordinator.muster";
inline constexpr char kNodeServerName[] = "node.muster";
std::string_view ServerName(Role role);

// How long a certificate of the role is good for by default.
Duration DefaultLifetime(Role role);
// The one of the authority itself.
inline constexpr Duration kAuthorityLifetime = std::chrono::hours(24 * 3652);
// A certificate is valid from so long before it was issued, for machines whose clocks are behind.
inline constexpr Duration kClockSkew = std::chrono::minutes(5);

}  // namespace muster
