#include "worker/allocation/scheduler.h"

#include <algorithm>

namespace muster::worker {
namespace {

bool Has(const std::vector<std::string>& nodes, const std::string& node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

// Silence alone proves nothing, and neither does a list that still has the node: slurmctld takes as
// long as SlurmdTimeout.
ClosingStep OfBatchNode(const AllocationState& state, const ClosingOrder& order) {
  if (state.batch_node.empty() || state.nodes.empty()) return ClosingStep::kNothing;
  if (!Has(state.nodes, state.batch_node)) return ClosingStep::kCancel;
  return Has(order.silent, state.batch_node) ? ClosingStep::kWait : ClosingStep::kNothing;
}

ClosingResult Said(const Status& status) {
  if (status.ok()) return {};
  // Retries do not help if there are no commands or the job does not exist. A container has none;
  // its batch script is outside.
  const bool never =
      status.code() == StatusCode::kNotFound || status.code() == StatusCode::kUnimplemented;
  return {.closing = never ? Closing::kDone : Closing::kAgain,
          .why = status.message(),
          .left_to_script = never};
}

}  // namespace

ClosingStep DecideClosing(const AllocationState& state, const ClosingOrder& order) {
  if (state.run > order.run) return ClosingStep::kLeftOut;
  if (state.ending) return ClosingStep::kNothing;
  if (!state.nodes.empty() && !Has(state.nodes, order.node)) return ClosingStep::kLeftOut;
  if (order.stand_in) {
    const bool another = std::any_of(order.below.begin(), order.below.end(),
                                     [&](const auto& node) { return Has(state.nodes, node); });
    if (another) return ClosingStep::kWait;
  }
  if (order.ending.action == EndAction::kLeave) return OfBatchNode(state, order);
  if (state.may_requeue) return ClosingStep::kRequeue;
  const ClosingStep step = OfBatchNode(state, order);
  return step == ClosingStep::kNothing ? ClosingStep::kRefused : step;
}

ClosingResult CloseAllocation(Scheduler& scheduler, const ClosingOrder& order) {
  // The batch script ends the allocation, and its node is there.
  if (order.ending.action == EndAction::kLeave && order.missing.empty()) return {};
  const auto state = scheduler.Ask();
  if (!state.ok()) return Said(state.status());
  switch (DecideClosing(*state, order)) {
    case ClosingStep::kNothing: return {};
    case ClosingStep::kRequeue: {
      const auto requeued = scheduler.Requeue(order.ending.exclude);
      ClosingResult result = Said(requeued.status());
      result.requeued = requeued.ok() && *requeued;
      return result;
    }
    case ClosingStep::kCancel: return Said(scheduler.Cancel());
    case ClosingStep::kRefused:
      return {
          Closing::kDone,
          "the job may not be requeued; submit it with sbatch --requeue, or submit it again: it "
          "goes on from its last checkpoint"};
    case ClosingStep::kWait:
      return {Closing::kAgain, "the scheduler still has nodes that do not answer here"};
    case ClosingStep::kLeftOut: break;
  }
  return {Closing::kLeftOut, "the scheduler has given this node up, or has started the job again"};
}

}  // namespace muster::worker
