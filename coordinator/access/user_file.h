// The file of the cluster's users: who they are, and which role each has where.
//
// docs/users.md describes the keys. Pure functions and plain values; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/queues/queue_tree.h"

namespace muster {

// Each may do what those before it may.
enum class UserRole { kNone = 0, kViewer, kSubmitter, kOperator, kAdmin };
inline constexpr int kUserRoleCount = 5;
std::string_view Name(UserRole role);  // none, viewer, submitter, operator, admin

inline constexpr int kMaxUsers = 10'000;
inline constexpr std::size_t kMaxIssuers = 8;

// Whom people may log in at (OpenID Connect).
struct IssuerSpec {
  std::string url;        // as it calls itself
  std::string client_id;  // by which it knows this cluster
  friend bool operator==(const IssuerSpec&, const IssuerSpec&) = default;
};

// Who a person is for an issuer; no two issuers share subjects.
struct UserIdentity {
  std::string issuer;  // empty: the user does not log in
  std::string subject;
  friend auto operator<=>(const UserIdentity&, const UserIdentity&) = default;
};

// What one user has, by all grants that name the user or a group of the user's.
struct UserSpec {
  bool disabled = false;
  std::string account;  // of nodes that run jobs as their owners; empty: none
  UserIdentity identity;
  UserRole cluster = UserRole::kNone;      // in the whole cluster
  std::map<std::string, UserRole> queues;  // in these queues and those below them
  friend bool operator==(const UserSpec&, const UserSpec&) = default;
};

struct UserDirectory {
  std::uint64_t version = 0;  // 0: none was applied: the cluster has no users
  std::map<std::string, UserSpec, std::less<>> users;

  std::vector<IssuerSpec> issuers;
  std::map<UserIdentity, std::string> identities;  // the users who log in

  bool in_force() const { return version > 0; }
  const UserSpec* Find(std::string_view user) const;  // nullptr: there is none
  const IssuerSpec* FindIssuer(std::string_view url) const;
  // The user's name; nullptr: no user has the identity.
  const std::string* FindByIdentity(const std::string& issuer, const std::string& subject) const;
  friend bool operator==(const UserDirectory&, const UserDirectory&) = default;
};

// A directory of version 0. kInvalidArgument "FILE:LINE: KEY: what is wrong": nothing is used from
// an invalid file. Whether its queues exist is for CheckQueues.
Result<UserDirectory> ParseUserFile(std::string_view yaml, const std::string& file);

// The directory of the file that the store has; version 0: no users. kFailedPrecondition: this
// version of Muster does not accept the file, so another one applied it.
Result<UserDirectory> ParseStoredUsers(std::uint64_t version, const std::string& yaml);

// kInvalidArgument names the first queue of a grant that the tree does not have.
Status CheckQueues(const UserDirectory& users, const QueueTree& tree);

// What differs, a line for each user and issuer: "ada: submitter in nlp -> operator in nlp".
std::vector<std::string> UserChanges(const UserDirectory& before, const UserDirectory& after);
// "operator in nlp, viewer in the whole cluster"; "no role".
std::string RolesText(const UserSpec& user);

}  // namespace muster
