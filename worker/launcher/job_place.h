// What a job has of the node before it starts: its directories and its cgroup, made by root and
// given to its account.
//
// Every path is a name below a directory that root alone may change, or below one that was taken
// back from the account. One thread.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "worker/launcher/account.h"
#include "worker/process/cgroup.h"

namespace muster::launcher {

// JOB/run, JOB/tmp and JOB/var-tmp below `directory`. kAlreadyExists: they are another account's.
Status MakeJobDirectories(int directory, const std::string& job, const Account& account,
                          gid_t readers);
// Those that are empty.
void RemoveJobDirectories(int directory, const std::string& job);

// The leaf in which the guardian is to be, of the job's cgroup below `base`; the no-op where the
// kernel or the node's administrator allows no cgroup.
std::unique_ptr<Cgroup> MakeJobCgroup(const std::string& base, const std::string& job,
                                      const Account& account);
// Ends what is in it, and removes it. kAborted: its processes still end.
Status EndJobCgroup(const std::string& base, const std::string& job);

}  // namespace muster::launcher
