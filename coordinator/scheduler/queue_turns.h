// QueueTurns: which of the queues that have waiting jobs goes next.
//
// At each level of the tree the sibling with less usage per weight goes first, and of equal ones
// the first in the tree. A choice costs the logarithm of the siblings at each level.
//
// Values of one pass; one thread.
#pragma once

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "coordinator/queues/queue_tree.h"
#include "coordinator/scheduler/queue_loads.h"

namespace muster {

class QueueTurns {
 public:
  // Both outlive it.
  QueueTurns(const QueueTree& tree, const QueueLoads& loads);

  void Add(int queue);     // a leaf that is not among them
  void Remove(int queue);  // a leaf that is
  bool empty() const { return Waiting(kTop).empty(); }
  int Next() const;  // there is one
  // After the shares of the queue and of those above it have changed.
  void Update(int queue);

 private:
  using Siblings = std::set<std::pair<double, int>>;  // by share, then by place in the tree
  static constexpr int kTop = -1;

  static std::size_t At(int queue) { return static_cast<std::size_t>(queue + 1); }
  int ParentOf(int queue) const { return tree_.queues[static_cast<std::size_t>(queue)].parent; }
  Siblings& Waiting(int parent) { return waiting_[At(parent)]; }
  const Siblings& Waiting(int parent) const { return waiting_[At(parent)]; }
  void Enter(int queue);
  bool Leave(int queue);  // whether it was among its siblings

  const QueueTree& tree_;
  const QueueLoads& loads_;
  std::vector<Siblings> waiting_;  // children, of the top and of each queue
  std::vector<double> share_;      // with which each was entered
};

}  // namespace muster
