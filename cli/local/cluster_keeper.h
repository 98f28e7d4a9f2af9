// ClusterKeeper: a child process that takes a cluster down once this process is gone, for whatever
// reason (kill -9, a closed ssh or pipe, a second Ctrl-C).
//
// It waits on a pipe whose other end only this process holds; the kernel closes it at exit. Then it
// runs `muster down`, and removes the directory if nothing is left running. Owned by the owner of
// the cluster; one thread.
#pragma once

#include <string>

#include "cli/base/processes.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace muster {

class ClusterKeeper {
 public:
  ClusterKeeper() = default;
  ClusterKeeper(const ClusterKeeper&) = delete;
  ClusterKeeper& operator=(const ClusterKeeper&) = delete;

  // `muster` is the program that takes the cluster in `dir` down.
  Status Start(const std::string& muster, const std::string& dir);
  // For a cluster that is down: ends the keeper, and waits for it. Without a keeper it does
  // nothing.
  void Dismiss();

 private:
  ProcessId keeper_;
  UniqueFd lifeline_;
};

}  // namespace muster
