// StragglerDetector: a rank that makes all others wait, step after step.
//
// Compares each rank's busy seconds per finished step (waits for peers taken off) with the median
// of the others. It looks at windows of a few steps, since pages are sampled at 20 Hz and
// fast steps go by unseen between two samples; a rank that is behind in every window for
// `steps_before_verdict` steps on end is told once, and again only after it was gone.
//
// One per job, owned by the job's entry in the controller; one thread. Pure. A straggler is told
// and never acted on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/wire/messages.h"

namespace muster {

struct StragglerOptions {
  double ratio = 1.1;             // of the others' median; from here on a rank is behind
  std::int64_t window_steps = 5;  // of every rank
  std::int64_t steps_before_verdict = 20;
};

struct Straggler {
  int rank = 0;
  NodeName node;
  double seconds = 0;         // of its own work per step
  double others_seconds = 0;  // the median of the others
  std::string phase;          // with the largest excess; empty: none stands out
  std::string message;        // a sentence without its full stop
};

class StragglerDetector {
 public:
  explicit StragglerDetector(StragglerOptions options = {}) : options_(options) {}

  // A new gang, its nodes by rank.
  void Begin(std::vector<NodeName> nodes);

  // What a worker said; ranks out of range are ignored. The stragglers that are news, worst first.
  std::vector<Straggler> Observe(const std::vector<RankProgress>& ranks);

 private:
  struct Rank {
    std::optional<RankProgress> begin;  // of the window
    std::optional<RankProgress> newest;
    std::int64_t steps_behind = 0;  // on end
    bool told = false;
  };

  static std::int64_t StepsOf(const Rank& rank);
  static double SecondsPerStep(const Rank& rank);
  std::vector<Straggler> CloseWindow();
  Straggler Describe(int rank, double seconds, double others_seconds) const;
  std::string PhaseOfExcess(int rank) const;

  StragglerOptions options_;
  std::vector<NodeName> nodes_;
  std::vector<Rank> ranks_;
  int full_ = 0;  // ranks with the steps of a window
};

}  // namespace muster
