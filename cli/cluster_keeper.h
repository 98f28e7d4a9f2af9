// ClusterKeeper: a process beside this one that takes down a cluster of ours once we are gone,
// however that came about (kill -9, a closed ssh, a second Ctrl-C).
//
// It waits on a pipe whose other end only this process holds; the kernel closes it with us. Then it
// does what `muster down` does, and removes the directory if nothing is left running. Owned by who
// owns the cluster; one thread.
#pragma once

#include <string>

#include "cli/processes.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

class ClusterKeeper {
 public:
  ClusterKeeper() = default;
  ClusterKeeper(const ClusterKeeper&) = delete;
  ClusterKeeper& operator=(const ClusterKeeper&) = delete;

  // `muster` is the program that takes the cluster in `dir` down.
  Status Start(const std::string& muster, const std::string& dir);
  // The cluster is down: the keeper ends, and has ended when this returns. Without a keeper it does
  // nothing.
  void Dismiss();

 private:
  ProcessId keeper_;
  UniqueFd lifeline_;
};

}  // namespace muster
