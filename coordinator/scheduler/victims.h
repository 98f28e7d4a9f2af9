// VictimSearch: which running gangs give way to a job that waits, so that it starts as soon as they
// have saved their state and stopped.
//
// A gang may be a victim of a job of a higher class, and of one whose queue, or one above it, stays
// within its guarantee with it; then the gang's class is not higher, and its queue and those above
// it keep what they are guaranteed. Gangs that can go on with fewer nodes shrink before one is
// preempted. The set is built by cost for what it frees of the job's need, and what turns out to be
// needless is dropped again: without any one of the victims the job would not fit.
//
// Values of one pass; one thread.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "coordinator/scheduler/gang_choice.h"
#include "coordinator/scheduler/queue_loads.h"
#include "coordinator/scheduler/running_gang.h"

namespace muster {

// A gang that may give way to a certain job.
struct Offer {
  // A part of the gang whose node the pass has, and what the job lacks there if it is free.
  struct Part {
    std::size_t at = 0;  // in RunningGang::parts
    PlannedNode* node = nullptr;
    double lack_without = 0;
    int seen = -1;  // the change of the node that this is of; -1: none
  };

  const RunningGang* gang = nullptr;
  ReclaimCause cause = ReclaimCause::kClass;
  bool borrowed = false;
  TimePoint leaves, ends;  // by when it has stopped; when it ends otherwise
  std::vector<Part> parts;
  std::vector<std::size_t> given;  // of `parts`, if it shrinks
  bool whole = false;              // it is preempted

  bool chosen() const { return whole || !given.empty(); }
  Amounts amounts() const;
};

class VictimSearch {
 public:
  // All of them outlive it. `entitled`: the job's queue, or one above it, stays within its
  // guarantee with it.
  VictimSearch(const GangRequest& request, bool entitled, TimePoint now, PlannedNodes& nodes,
               QueueLoads& loads);

  // A gang that ends by itself at `ends`.
  void Consider(const RunningGang& gang, TimePoint ends);
  // When a gang may be a victim that may not yet; kNever: there is none.
  TimePoint next() const { return next_; }

  // Chooses for a start at that time. Nodes and loads are then as if the victims stopped by
  // themselves; false: no set is enough, and they are as before.
  bool Run(const std::vector<NodeMatch>& matches);
  std::vector<Reclaim> Chosen() const;

 private:
  struct Choice;

  bool RunWithin(const Fit& fit, const std::vector<std::size_t>& nodes);
  bool Search(const Fit& fit);
  void FindReachable(const Fit& fit);
  bool Choose(const Fit& fit, bool shrink);
  Choice ShrinkOf(const Fit& fit, Offer& offer);
  Choice WholeOf(const Fit& fit, Offer& offer);
  Choice Judge(const Fit& fit, Offer& offer, std::size_t most_parts, bool shrink);
  void Prune(const Fit& fit);
  bool DropLostNodes();
  bool MayGive(const Offer& offer, const Amounts& more) const;
  void Set(const Fit& fit, Offer& offer, std::vector<std::size_t> given, bool whole);
  void Free(const Offer& offer, const Offer::Part& part, bool free);
  void Yield(const Offer& offer, const Amounts& amounts);
  void LookAt(const Fit& fit, const Offer& offer);
  void Measure();
  bool fits() const;

  const GangRequest& request_;
  const bool entitled_;
  const TimePoint now_;
  PlannedNodes& nodes_;
  QueueLoads& loads_;
  TimePoint leave_at_;
  TimePoint next_ = kNever;
  std::vector<Offer> offers_;
  std::vector<double>
      lack_;  // of each node; of those that do not count, more than of any that does
  std::vector<Offer*> here_;                           // those with nodes that the job looks at
  std::vector<std::pair<double, std::size_t>> gains_;  // of the parts of the offer that is judged
  std::vector<bool> counts_;         // nodes that the job could have if all gave way
  std::vector<int> changes_;         // of each node
  std::vector<std::size_t> within_;  // the nodes that the job looks at
  int by_guarantee_ = 0;             // offers that are chosen for a guarantee
  double need_ = 0;                  // what the best nodes lack, summed
  double mark_ = 0;                  // the most that one of them lacks
  CeilingExcess excess_;
};

}  // namespace muster
