// What a job has of the node before it starts: its directories and its cgroup, made by root and
// given to its account.
//
// Every path is a name below a directory that root alone may change, or below one that was taken
// back from the account. One thread.
#pragma once

#include <string>

#include "common/base/unique_fd.h"
#include "worker/launcher/account.h"

namespace muster::launcher {

// JOB/run, JOB/tmp and JOB/var-tmp below `directory`. False: errno; EEXIST: another account's.
bool MakeJobDirectories(int directory, const std::string& job, const Account& account,
                        gid_t readers);
// Those that are empty.
void RemoveJobDirectories(int directory, const std::string& job);

// cgroup.procs of the leaf in which the guardian is to be, below `base`; not valid where the kernel
// or the node's administrator allows no cgroup.
UniqueFd MakeJobCgroup(const std::string& base, const std::string& job, const Account& account);
// Ends what is in it, and removes it. False: its processes still end.
bool EndJobCgroup(const std::string& base, const std::string& job);

}  // namespace muster::launcher
