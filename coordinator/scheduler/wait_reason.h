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
  int ready = 0;         // nodes that are ready
  int without_gpus = 0;  // ready nodes that the job cannot use, since it needs GPUs
  // The others count only nodes that the job may use.
  int large_enough = 0;   // have as many slots as it needs, free or not
  int with_room = 0;      // have as many free slots, and free GPUs if it needs them
  int reserved = 0;       // have as many free slots, which a job ahead of it waits for
  JobId reserved_for;     // the last of those jobs
  int gpus_taken = 0;     // have as many free slots, but another job has their GPUs
  JobId gpu_job;          // the last of those jobs
  bool excludes = false;  // it does without some nodes
  friend bool operator==(const WaitReason&, const WaitReason&) = default;
};

// "needs 2 nodes with 1 free slot each; 1 ready node has room".
std::string WaitText(const WaitReason& reason);

}  // namespace muster
