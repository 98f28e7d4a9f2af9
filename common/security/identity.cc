#include "common/security/identity.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/ids.h"

namespace muster {
namespace {

constexpr std::string_view kScheme = "muster://";

}  // namespace

std::string_view RoleWord(Role role) {
  switch (role) {
    case Role::kAdmin: return "admin";
    case Role::kCoordinator: return "coordinator";
    case Role::kNode: return "node";
    case Role::kScraper: return "scraper";
    case Role::kUser: return "user";
  }
  MUSTER_CHECK(false, "no role");
}

Result<Role> ParseRole(std::string_view word) {
  for (const Role role : kRoles)
    if (RoleWord(role) == word) return role;
  return InvalidArgument("'" + std::string(word.substr(0, kMaxNameBytes)) +
                         "' is no role; use admin, coordinator, node, scraper or user");
}

Status CheckName(std::string_view what, std::string_view name) {
  if (FollowsNameRule(name)) return OkStatus();
  std::string shown(name.substr(0, kMaxNameBytes));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return InvalidArgument(std::string(what) + " '" + shown +
                         "' is refused: " + std::string(kNameRule));
}

Status CheckIdentity(const Identity& identity) {
  MUSTER_RETURN_IF_ERROR(CheckName("cluster name", identity.cluster));
  return CheckName(std::string(RoleWord(identity.role)) + " name", identity.name);
}

std::string IdentityUri(const Identity& identity) {
  return std::string(kScheme) + identity.cluster + "/" + std::string(RoleWord(identity.role)) +
         "/" + identity.name;
}

Result<Identity> ParseIdentityUri(std::string_view uri) {
  if (!uri.starts_with(kScheme))
    return InvalidArgument("the identity is not muster://CLUSTER/ROLE/NAME");
  const std::string_view rest = uri.substr(kScheme.size());
  const std::size_t first = rest.find('/');
  const std::size_t second = first == rest.npos ? rest.npos : rest.find('/', first + 1);
  if (second == rest.npos) return InvalidArgument("the identity is not muster://CLUSTER/ROLE/NAME");
  Identity identity;
  identity.cluster = rest.substr(0, first);
  MUSTER_ASSIGN_OR_RETURN(identity.role, ParseRole(rest.substr(first + 1, second - first - 1)));
  identity.name = rest.substr(second + 1);
  MUSTER_RETURN_IF_ERROR(CheckIdentity(identity));
  return identity;
}

std::string_view ServerName(Role role) {
  switch (role) {
    case Role::kCoordinator: return kCoordinatorServerName;
    case Role::kNode: return kNodeServerName;
    case Role::kAdmin:
    case Role::kScraper:
    case Role::kUser: return "";
  }
  MUSTER_CHECK(false, "no role");
}

Duration DefaultLifetime(Role role) {
  constexpr std::chrono::hours kDay(24);
  switch (role) {
    case Role::kAdmin: return 365 * kDay;
    case Role::kCoordinator: return 30 * kDay;
    case Role::kNode: return kDay;
    case Role::kScraper: return 90 * kDay;
    case Role::kUser: return 90 * kDay;
  }
  MUSTER_CHECK(false, "no role");
}

}  // namespace muster
