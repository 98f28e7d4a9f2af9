// RankCounters: counters of the ranks of one job on this node, over all processes that a rank has
// had.
//
// A process counts since its start (ProgressValues, TrainingFigures); a recovery gives its rank to
// another process, or the process another rank. Here each count goes to the rank that the process
// had at the time, so that a rank's totals only grow.
//
// Owned by ProgressSampler. Pure; one thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>

#include "common/base/ids.h"
#include "common/control_pipe/progress_page.h"
#include "common/control_pipe/training_figures.h"

namespace muster::worker {

// Totals of one rank on one node, in all attempts; or of one process.
struct RankTotals {
  std::int64_t steps = 0;
  std::int64_t tokens = 0;  // of the whole job, as samples and flops
  std::int64_t samples = 0;
  double flops = 0;
  std::int64_t nonfinite = 0;
  double wait_seconds = 0;
  double step_seconds_sum = 0;
  std::array<std::uint64_t, kStepSecondsBounds.size() + 1> step_seconds_buckets = {};
  std::array<double, kStepPartCount> part_seconds = {};
  std::array<double, kRankTimeCount> time_seconds = {};
  SaveSeconds stage;
  SaveSeconds write;
  std::uint64_t checkpoint_bytes = 0;
  std::array<std::uint64_t, kCollectiveErrorCount> collective_errors = {};
  std::uint64_t alloc_retries = 0;
  std::uint64_t ooms = 0;
  std::array<std::uint64_t, kCollectiveOpCount> collectives = {};
  std::uint64_t socket_fallbacks = 0;

  RankTotals& operator+=(const RankTotals& other);
  RankTotals& operator-=(const RankTotals& other);
};

// The identity of a process; its pid alone may be reused.
struct ProcessKey {
  pid_t pid = 0;                 // 0: not known
  std::uint64_t start_time = 0;  // 0: not known
};

class RankCounters {
 public:
  // In this generation the process has the rank.
  void Take(int rank, Generation generation, const ProcessKey& process);
  // The counters of the rank's process by now.
  void Update(int rank, const ProgressValues& values, const TrainingFigures& figures);
  // The rank's process has ended; it was read for the last time before.
  void End(int rank);

  RankTotals Total(int rank) const;

 private:
  struct Process {
    ProcessKey key;
    Generation used = 0;  // the newest generation in which it had a rank
    RankTotals counted;
  };
  struct Rank {
    RankTotals before;    // of processes that no longer have it
    RankTotals at_start;  // what its process had counted when it took the rank
    int process = -1;     // id in processes_; -1: none
  };

  int Find(const ProcessKey& key) const;
  void Leave(Rank& rank);

  std::map<int, Rank> ranks_;
  std::map<int, Process> processes_;  // by an internal id
  int next_process_ = 0;
  Generation generation_ = 0;
};

}  // namespace muster::worker
