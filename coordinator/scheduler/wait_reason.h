// WaitReason: why a waiting job gets no gang now, as numbers that can be compared and counted;
// WaitText is the sentence of it.
//
// Plain values and a pure function; any thread.
#pragma once

#include <string>

#include "common/base/ids.h"

namespace muster {

struct WaitReason {
  int nodes = 1;  // that its gang has at least
  int ranks_per_node = 1;
  int ready = 0;  // nodes that are ready
  // Of those that the job may use: with slots enough in all, and with slots enough that are free
  // and whose GPUs, if it needs them, no other job has.
  int large_enough = 0;
  int with_room = 0;
  int reserved = 0;    // with free slots, which wait for a job ahead of it
  JobId reserved_for;  // the last of those jobs
  int gpus_taken = 0;  // with free slots, and GPUs of another job
  JobId gpu_job;       // the last of those jobs
  int without_gpus = 0;
  bool excludes = false;  // it does without some nodes
  friend bool operator==(const WaitReason&, const WaitReason&) = default;
};

// "needs 2 nodes with 1 free slot each; 1 ready node has room".
std::string WaitText(const WaitReason& reason);

}  // namespace muster
