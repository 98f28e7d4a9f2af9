// Access: what an actor may do, by the cluster's users and queues. Default deny.
//
// A view: users and queues outlive it. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "coordinator/access/actor.h"
#include "coordinator/access/operations.h"
#include "coordinator/access/user_file.h"
#include "coordinator/queues/queue_tree.h"

namespace muster {

// What decides who may do what with a job.
struct JobAccess {
  std::string_view owner;  // empty: of a time when jobs had none
  std::string_view queue;
};

class Access {
 public:
  Access(const UserDirectory& users, const QueueTree& queues) : users_(users), queues_(queues) {}

  // OK, or kPermissionDenied with what is missing and who can give it. For scope kQueue `job` is
  // the job as it would be; for kJob nullptr stands for the whole cluster. That a job which the
  // actor may not see is not there is for the caller to say (MaySee).
  Status Check(const Actor& actor, ClientOperation operation, const JobAccess* job = nullptr) const;

  // OK, or why the actor may do nothing at all: it is disabled, or acts for a user and may not.
  Status CheckActor(const Actor& actor) const;

  // The strongest one that the actor has in the queue or above it.
  UserRole RoleIn(const Actor& actor, std::string_view queue) const;
  UserRole ClusterRole(const Actor& actor) const;
  bool MaySee(const Actor& actor, const JobAccess& job) const {
    return RoleIn(actor, job.queue) >= UserRole::kViewer;
  }
  bool MaySeeAll(const Actor& actor) const { return ClusterRole(actor) >= UserRole::kViewer; }

 private:
  Status CheckIdentity(const Actor& actor) const;
  bool IsAdmin(const Actor& actor) const;
  const UserSpec* UserOf(const Actor& actor) const;

  const UserDirectory& users_;
  const QueueTree& queues_;
};

}  // namespace muster
