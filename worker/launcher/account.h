// An account of this node, and becoming it.
//
// Used by muster-launcher in children that handle one request and end: lookups may wait for a
// directory server. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace muster::launcher {

// Ids below it are the system's, and no job runs with one.
inline constexpr std::uint32_t kFirstId = 1000;

struct Account {
  std::string name;
  std::string home;
  std::string shell;
  uid_t uid = 0;
  gid_t gid = 0;
  // Supplementary ones from kFirstId on: groups such as docker or disk are as good as root.
  std::vector<gid_t> groups;
};

// kNotFound: this node has none of that name. kFailedPrecondition: it is one of the system's.
Result<Account> FindAccount(const std::string& name);

// Limits the bounding set to `keep`, and empties the ambient one. Permitted and effective become
// `keep`; where that is 0 they stay, since Become still needs them. False: errno.
bool LimitCapabilities(std::uint64_t keep);
// The ids of the account, no capability in any set, no_new_privs, and a look whether it is so.
// False: errno; the process must end.
bool Become(const Account& account);

// Refuses calls that no job and no launcher makes (modules, kexec, reboot, swap, clocks, handles of
// files), for this process and its children. False: errno.
bool RefuseCalls();

}  // namespace muster::launcher
