// Actor: who makes a request, as the connection has proved it. Goes with each request into the
// controller, which stores the names.
//
// Plain value; any thread.
#pragma once

#include <string>

namespace muster {

struct Actor {
  enum class Kind {
    kNobody,  // nothing was proved: may do nothing
    kUser,    // a user of the cluster's user file, by certificate
    kAdmin,   // an admin's certificate, or the token of a cluster without users
    kSystem,  // the coordinator itself
  };
  Kind kind = Kind::kNobody;
  // The user's, or the one in the admin's certificate; for an actor that may do nothing, what its
  // certificate says, such as "node/n7".
  std::string name;
  std::string as_user;  // the user for whom an admin acts, with that user's rights; empty: itself
  std::string peer;     // address of the other end
  std::string request;  // of this call; unique in the cluster

  // Whose request it is: owner of a job that it submits.
  const std::string& user() const { return as_user.empty() ? name : as_user; }
  friend bool operator==(const Actor&, const Actor&) = default;
};

// "ada", "root for ada": for messages and logs.
inline std::string ActorText(const Actor& actor) {
  return actor.as_user.empty() ? actor.name : actor.name + " for " + actor.as_user;
}

// "user/ada", "admin/root": what was proved, for the audit trail.
inline std::string ActorId(const Actor& actor) {
  switch (actor.kind) {
    case Actor::Kind::kNobody: return actor.name.empty() ? "-" : actor.name;
    case Actor::Kind::kUser: return "user/" + actor.name;
    case Actor::Kind::kAdmin: return "admin/" + actor.name;
    case Actor::Kind::kSystem: return "system/" + actor.name;
  }
  return "-";
}

}  // namespace muster
