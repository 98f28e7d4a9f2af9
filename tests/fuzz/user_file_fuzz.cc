// The file of a cluster's users, roles and identities.
#include <string>

#include "coordinator/access/user_file.h"
#include "coordinator/queues/queue_file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace muster;
  const Result<UserDirectory> users = ParseUserFile(fuzz::TextOf(data, size), "users.yaml");
  if (!users.ok()) {
    fuzz::Require(users.status().code() == StatusCode::kInvalidArgument, users.status().ToString());
    return 0;
  }
  fuzz::Require(UserChanges(*users, *users).empty(), "users do not differ from themselves");
  for (const auto& [identity, name] : users->identities) {
    const UserSpec* user = users->Find(name);
    fuzz::Require(user != nullptr && user->identity == identity, "an identity is its user's");
    fuzz::Require(users->FindIssuer(identity.issuer) != nullptr, "an identity has its issuer");
  }
  for (const auto& [name, user] : users->users) RolesText(user);
  static const QueueTree tree = *ParseQueueFile(kDefaultQueueFile, "queues.yaml");
  (void)CheckQueues(*users, tree);
  const Result<UserDirectory> stored = ParseStoredUsers(1, std::string(fuzz::TextOf(data, size)));
  fuzz::Require(stored.ok() && stored->users == users->users, "what was applied is read again");
  return 0;
}
