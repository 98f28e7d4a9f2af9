// An account of this node, and becoming it.
//
// Used by muster-launcher in children that handle one request and end: lookups may wait for a
// directory server. One thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "worker/launcher/messages.h"

namespace muster::launcher {

struct Account {
  std::string name;
  std::string home;
  std::string shell;
  uid_t uid = 0;
  gid_t gid = 0;
  // Supplementary ones from kFirstId on: groups such as docker or disk are as good as root.
  std::vector<gid_t> groups;
};

// kNoAccount, kSystemAccount, or kFailed with errno in `error`.
Reason FindAccount(const char* name, Account* account, int* error);

// Empties the sets of this process, and of all that it executes; the uid is to be changed after
// it, the last being DropAll. False: errno.
bool LimitCapabilities(std::uint64_t keep);
// The ids of the account, no capability in any set, no_new_privs, and a look whether it is so.
// False: errno; the process must end.
bool Become(const Account& account);

// Refuses calls that no job and no launcher makes (modules, kexec, reboot, swap, clocks, handles of
// files), for this process and its children. False: errno.
bool RefuseCalls();

}  // namespace muster::launcher
