// The processors to which each rank of a job on this node is bound.
//
// A rank that the kernel moves between sockets reads its memory across them and loses its caches;
// one that computes on a GPU copies fastest from the GPU's own NUMA node. So a rank with a GPU gets
// all processors of the GPU's node, shared with ranks of other GPUs there, and ranks without GPUs
// an even share of all each, whole cores with their threads. Ranks are not bound if that could slow
// them down. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "worker/fabric/cpu_topology.h"

namespace muster::worker {

struct CpuBindingRequest {
  int ranks = 1;               // of the job on this node
  int cpus_per_rank = 1;       // threads of each, OMP_NUM_THREADS
  bool whole_node = true;      // no other job can come to the node in the meantime
  std::vector<int> gpu_nodes;  // the NUMA node of each rank's GPU, -1: unknown; empty: no GPUs
};

struct RankCpus {
  std::vector<int> cpus;  // empty: not bound
  int memory_node = -1;   // where its memory is taken from first; -1: wherever it runs

  friend bool operator==(const RankCpus&, const RankCpus&) = default;
};

struct CpuBindingPlan {
  std::vector<RankCpus> ranks;  // by local rank
  std::string sentence;         // the binding, or why there is none; for people
  bool notable = false;         // there was something to choose: several NUMA nodes
};

CpuBindingPlan PlanCpuBinding(const CpuTopology& topology, const CpuBindingRequest& request);

// No rank is bound, for this reason.
CpuBindingPlan NoCpuBinding(int ranks, const std::string& why);

}  // namespace muster::worker
