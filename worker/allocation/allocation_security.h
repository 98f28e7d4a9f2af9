// The certificate authority of one run of an allocation, and the certificates that a supervisor
// issues by it.
//
// It lies in the shared directory, where only the allocation's user can read its key, and it exists
// for the run only: the first supervisor makes it, the leader at the end removes it. All of an
// allocation's processes belong to one user, so each node issues its own certificates.
//
// Blocks; any thread.
#pragma once

#include <string>

#include "common/base/status.h"

namespace muster::worker {

struct AllocationSecurity {
  std::string allocation;    // the cluster's name in certificates
  std::string security_dir;  // of the shared directory
  std::string local_dir;     // of this node
  std::string node;
};

// For a worker, and for a supervisor that asks another.
inline std::string NodeCredentials(const std::string& local_dir) {
  return local_dir + "/credentials";
}
// For a coordinator, and for a supervisor that answers.
inline std::string CoordinatorCredentials(const std::string& local_dir) {
  return local_dir + "/coordinator/credentials";
}

// Issues both, and makes the authority if there is none. Several may try at once: one makes it.
Status MakeAllocationCredentials(const AllocationSecurity& security);

void RemoveAllocationAuthority(const std::string& security_dir);

}  // namespace muster::worker
