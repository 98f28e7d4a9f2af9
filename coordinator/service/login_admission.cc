#include "coordinator/service/login_admission.h"

#include "common/oidc/one_line.h"

namespace muster {
namespace {

constexpr std::size_t kMaxUrlShown = 256;

Result<std::string> Admit(const UserDirectory& users, const std::string& name) {
  const UserSpec& spec = *users.Find(name);
  if (spec.disabled) return PermissionDenied("user " + name + " is disabled in this cluster");
  if (spec.cluster == UserRole::kNone && spec.queues.empty())
    return PermissionDenied("user " + name + " has no role in this cluster; an admin gives one");
  return name;
}

}  // namespace

std::string IdentityText(const UserIdentity& identity) {
  return WithoutControls(identity.subject) + " of " + WithoutControls(identity.issuer);
}

Status NoSuchIssuer(const std::string& url) {
  if (url.empty()) return PermissionDenied("the user file lists no issuers; an admin adds them");
  return PermissionDenied("the user file does not list the issuer URL " +
                          WithoutControls(url.substr(0, kMaxUrlShown)) +
                          "; an admin adds it under 'issuers'");
}

Result<std::string> AdmitLogin(const UserDirectory& users, const VerifiedLogin& login) {
  const IssuerSpec* issuer = users.FindIssuer(login.identity.issuer);
  const std::string* name = users.FindByIdentity(login.identity.issuer, login.identity.subject);
  if (issuer == nullptr || issuer->client_id != login.client_id || name == nullptr)
    return PermissionDenied("no user of this cluster has the identity " +
                            IdentityText(login.identity) +
                            "; an admin gives one to a user of the user file");
  return Admit(users, *name);
}

Result<std::string> AdmitAccount(const UserDirectory& users, const std::string& account) {
  const std::string* found = nullptr;
  for (const auto& [name, user] : users.users) {
    if (user.account != account) continue;
    if (found != nullptr)
      return PermissionDenied("users " + *found + " and " + name + " have the account " + account +
                              ", so that it is open who logs in");
    found = &name;
  }
  if (found == nullptr)
    return PermissionDenied("no user of this cluster has the account " + account +
                            "; an admin gives one to a user of the user file");
  return Admit(users, *found);
}

}  // namespace muster
