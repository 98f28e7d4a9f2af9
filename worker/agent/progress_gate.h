// ProgressGate: whether a sample of a gang's ranks on this node is sent to the coordinator now, or
// waits for the next regular message.
//
// Sent at once: an ended rank, another lifecycle phase (the phases within a step are one), another
// process state. If no rank of the node has moved for a third of the shortest hang limit, samples
// are sent as often as the hang detector needs them to name the hang in time. Everything else is
// sent once per interval. Fills in what only a comparison of samples shows: quiet time, the slowest
// step.
//
// One per gang and generation, owned by ProgressSampler. Pure; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/clock.h"
#include "common/wire/messages.h"

namespace muster::worker {

class ProgressGate {
 public:
  // The process of this rank has ended: no progress is expected of it.
  void EndRank(int rank);
  // Another process has the rank.
  void BeginRank(int rank) { known_.erase(rank); }

  // `ranks`: all ranks of the gang on the node, in a sample taken at `now`. True: send them now.
  bool Observe(std::vector<RankProgress>* ranks, TimePoint now, Duration interval);

 private:
  struct Known {
    bool ended = false;
    RankProgress sample;  // the newest
    TimePoint moved_at;
    std::uint64_t samples = 0;  // since then
    double slowest_step = 0;    // in seconds, since the last message
  };

  // True: the change must be sent at once.
  static bool Update(Known& known, RankProgress& sample, TimePoint now);

  std::map<int, Known> known_;
  bool urgent_ = false;
  TimePoint sent_at_;
};

}  // namespace muster::worker
