// Starting a program as an account, from a child of muster-launcher that handles one request.
//
// One thread.
#pragma once

#include <string>
#include <vector>

#include "worker/launcher/account.h"
#include "worker/launcher/messages.h"

namespace muster::launcher {

struct Start {
  const Account* account = nullptr;
  std::vector<std::string> argv;
  int socket = -1;  // the program finds it as descriptor 3
  // For a guardian: the job's directory, and cgroup.procs of its cgroup or -1.
  std::string directory;
  int cgroup_procs = -1;
};

inline constexpr int kSocketFd = 3;

// In a session of its own, with no other descriptor but the log of its job. Fills the reply.
void StartAs(const Start& start, Reply* reply);

}  // namespace muster::launcher
