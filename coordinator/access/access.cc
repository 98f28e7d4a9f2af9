#include "coordinator/access/access.h"

#include <algorithm>
#include <string>

namespace muster {
namespace {

constexpr char kNext[] =
    "\n  next: muster whoami shows your roles; an admin of the cluster gives others";

bool ActsForItself(const Actor& actor) {
  return actor.as_user.empty() &&
         (actor.kind == Actor::Kind::kAdmin || actor.kind == Actor::Kind::kSystem);
}

std::string Needs(const OperationRule& rule, UserRole role, const std::string& where) {
  return "may not " + std::string(rule.text) + where + ": that needs the role " +
         std::string(Name(role));
}

}  // namespace

const UserSpec* Access::UserOf(const Actor& actor) const {
  if (actor.kind == Actor::Kind::kNobody) return nullptr;
  const UserSpec* user = users_.Find(actor.user());
  return user == nullptr || user->disabled ? nullptr : user;
}

UserRole Access::ClusterRole(const Actor& actor) const {
  if (ActsForItself(actor)) return UserRole::kAdmin;
  const UserSpec* user = UserOf(actor);
  return user == nullptr ? UserRole::kNone : user->cluster;
}

UserRole Access::RoleIn(const Actor& actor, std::string_view queue) const {
  if (ActsForItself(actor)) return UserRole::kAdmin;
  const UserSpec* user = UserOf(actor);
  if (user == nullptr) return UserRole::kNone;
  UserRole role = user->cluster;
  if (user->queues.empty()) return role;
  for (int at = queues_.Find(queue); at >= 0;) {
    const QueueSpec& each = queues_.queues[static_cast<std::size_t>(at)];
    if (const auto held = user->queues.find(each.name); held != user->queues.end())
      role = std::max(role, held->second);
    at = each.parent;
  }
  return role;
}

// Who acts for another must be an admin by itself.
bool Access::IsAdmin(const Actor& actor) const {
  Actor itself = actor;
  itself.as_user.clear();
  return ClusterRole(itself) == UserRole::kAdmin;
}

Status Access::CheckIdentity(const Actor& actor) const {
  if (actor.kind == Actor::Kind::kNobody) return Unauthenticated("the caller has no identity");
  if (actor.as_user.empty()) return OkStatus();
  if (!IsAdmin(actor))
    return PermissionDenied("only an admin of the cluster acts for another user (--as " +
                            actor.as_user + ")");
  if (users_.Find(actor.as_user) != nullptr) return OkStatus();
  return PermissionDenied("this cluster has no user '" + actor.as_user +
                          "' (--as)\n  next: muster users show");
}

Status Access::CheckActor(const Actor& actor) const {
  MUSTER_RETURN_IF_ERROR(CheckIdentity(actor));
  if (ActsForItself(actor)) return OkStatus();
  const UserSpec* user = users_.Find(actor.user());
  if (user != nullptr && user->disabled)
    return PermissionDenied("user " + actor.user() + " is disabled in this cluster");
  return OkStatus();
}

Status Access::Check(const Actor& actor, ClientOperation operation, const JobAccess* job) const {
  const OperationRule& rule = RuleOf(operation);
  MUSTER_RETURN_IF_ERROR(rule.scope == Scope::kAnyone ? CheckIdentity(actor) : CheckActor(actor));
  const std::string who = ActorText(actor) + " ";
  switch (rule.scope) {
    case Scope::kAnyone: return OkStatus();
    case Scope::kMember: {
      if (ActsForItself(actor)) return OkStatus();
      const UserSpec* user = UserOf(actor);
      if (user != nullptr && (user->cluster != UserRole::kNone || !user->queues.empty()))
        return OkStatus();
      return PermissionDenied(who + "has no role in this cluster" + kNext);
    }
    case Scope::kQueue:
    case Scope::kJob: break;
    case Scope::kCluster: job = nullptr; break;
  }
  if (job == nullptr) {
    if (ClusterRole(actor) >= rule.role) return OkStatus();
    return PermissionDenied(who + Needs(rule, rule.role, "") + " in the whole cluster" + kNext);
  }
  const bool named = job->owner == actor.user();
  const bool own = rule.scope == Scope::kJob && !job->owner.empty() && named;
  const UserRole needed = own ? rule.own : rule.role;
  if (RoleIn(actor, job->queue) >= needed) return OkStatus();
  const std::string where = own || rule.scope == Scope::kQueue ? "" : " of other users";
  return PermissionDenied(who + Needs(rule, needed, where) + " in queue " +
                          std::string(job->queue) + kNext);
}

}  // namespace muster
