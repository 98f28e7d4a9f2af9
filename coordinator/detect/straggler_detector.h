// StragglerDetector: the verdict on which ranks make all others wait, step after step. Events,
// metrics, the status page and `muster top` show this verdict and compute none of their own.
//
// Compares each rank's busy seconds per finished step (without waits for peers) with the median of
// the others, in windows of a few steps; of many if steps are fast, because workers report once a
// second. On a shared machine every window has a slowest rank, a different one each time, so a
// window is not a verdict. It is evidence, which grows with the distance of the rank, up to a
// bound, so that one long pause names no rank; a window in which the rank keeps up removes
// evidence. A long window weighs more than a short one, up to half of what names a rank. A rank is
// a straggler from the moment its evidence is full until all of it is gone. Each verdict that did
// not last doubles the evidence that the gang's next one needs, so that a machine with varying load
// causes few events.
//
// One per job, owned by the job's entry in the controller; one thread. Pure. A straggler is named,
// and nothing is done about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/wire/messages.h"

namespace muster {

struct Straggler {
  int rank = 0;
  NodeName node;
  double seconds = 0;         // of its own work per step, since it fell behind
  double others_seconds = 0;  // the median of the others in that time
  std::string phase;          // with the largest excess; empty: none stands out

  double ratio() const { return seconds / others_seconds; }
};

// Sentences without their full stop, for events.
std::string NamedText(const Straggler& straggler);
std::string ClearedText(const Straggler& straggler);

struct StragglerNews {
  std::vector<Straggler> named;    // worst first
  std::vector<Straggler> cleared;  // by rank
};

class StragglerDetector {
 public:
  // A new gang, its nodes by rank. Stragglers of the previous gang are discarded.
  void Begin(std::vector<NodeName> nodes);

  // A worker's report; ranks out of range are ignored.
  StragglerNews Observe(const std::vector<RankProgress>& ranks);

  // The worst current straggler; null: there is none. Valid until the next call that is not const.
  const Straggler* worst() const;

 private:
  struct Rank {
    std::optional<RankProgress> begin;  // at the start of the window
    std::optional<RankProgress> newest;
    double evidence = 0;  // 0 or less: none
    // Since there is evidence: the means over windows of the rank's and the others' work per step.
    std::int64_t windows = 0;
    double seconds = 0;
    double others_seconds = 0;
    std::optional<Straggler> named;  // currently
  };

  static std::int64_t StepsOf(const Rank& rank);
  static bool FillsWindow(const Rank& rank);
  static double SecondsPerStep(const Rank& rank);
  void Weigh(double seconds, double others_seconds, Rank* rank) const;
  StragglerNews CloseWindow();
  void Judge(int number, StragglerNews* news);
  std::string PhaseOfExcess(int rank) const;

  std::vector<NodeName> nodes_;
  std::vector<Rank> ranks_;
  int full_ = 0;              // ranks with the steps of a window
  double full_evidence_ = 0;  // the evidence that names a rank
};

}  // namespace muster
