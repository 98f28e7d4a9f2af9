#include "trainer/train/nonfinite.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "trainer/comm/agree.h"
#include "trainer/fsdp/non_finite.h"

namespace muster {
namespace {

// The gradients of this step are gone into sums. They are made once more, and looked at before they
// are added up: that costs a step's time, and only where one is lost anyway.
TrainResult<std::string> OwnGradients(FsdpEngine& engine,
                                      const std::function<std::string(int)>& describe,
                                      const std::function<TrainStatus()>& repeat) {
  engine.non_finite().WatchGradients(true);
  const TrainStatus repeated = repeat();
  engine.non_finite().WatchGradients(false);
  if (!repeated.ok()) return repeated;
  MUSTER_RETURN_IF_ERROR(engine.FinishGradients().status());
  const OwnGradient& gradient = engine.non_finite().first_gradient();
  if (gradient.micro_batch < 0) return std::string();
  return "gradient of " + gradient.tensor + ", " + describe(gradient.micro_batch);
}

bool IsWeight(const NonFiniteStep& step) {
  return step.where.find(": weight of ") != std::string::npos;
}

// A NaN's sign says nothing, and differs between processors.
std::string Text(double value) { return std::isnan(value) ? "nan" : std::to_string(value); }

std::string WhatHappened(const NonFiniteStep& step) {
  std::string text = "step " + std::to_string(step.number) + ": loss is " + Text(step.loss) +
                     " and gradient norm is " + Text(step.grad_norm);
  if (step.where.empty()) return text + "; every weight and gradient is finite by itself";
  return text + "; not finite is " + step.where;
}

// The learning rate is no matter as long as nothing has been learnt.
std::string Advice(const NonFiniteStep& step) {
  if (IsWeight(step)) {
    return step.untouched_source.empty()
               ? "an update has made it so: lower train.optimizer.lr"
               : "it is so in " + step.untouched_source + ", which this training began with";
  }
  if (!step.untouched_source.empty())
    return "no update has been made yet: look at the rows of this step, and whether the weights "
           "of " +
           step.untouched_source + " are in the range of train.fsdp.mixed_precision";
  return "lower train.optimizer.lr, or look at the rows of this step";
}

}  // namespace

Result<NonFiniteOrigin> CompareFindings(const std::string& mine, Communicator& world) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(world.size()));
  sizes[static_cast<std::size_t>(world.rank())] = static_cast<std::int64_t>(mine.size());
  MUSTER_RETURN_IF_ERROR(
      world.AllReduce(sizes.data(), sizes.size(), ElementType::kInt64, ReduceOp::kSum)->Wait());
  NonFiniteOrigin origin;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (sizes[static_cast<std::size_t>(rank)] == 0) continue;
    if (origin.rank < 0) {
      origin.rank = rank;
    } else {
      ++origin.others;
    }
  }
  if (origin.rank < 0) return origin;
  origin.found = mine;
  MUSTER_RETURN_IF_ERROR(ShareText(world, &origin.found, origin.rank));
  return origin;
}

std::string DescribeOrigin(const NonFiniteOrigin& origin) {
  std::string text = "rank " + std::to_string(origin.rank) + ": " + origin.found;
  if (origin.others == 0) return text;
  return text + "; " + std::to_string(origin.others) +
         (origin.others == 1 ? " other rank has one too" : " other ranks have one too");
}

TrainResult<NonFiniteOrigin> FindNonFinite(FsdpEngine& engine, Communicator& world, double loss,
                                           const std::function<std::string(int)>& describe,
                                           const std::function<TrainStatus()>& repeat) {
  std::string weight = engine.non_finite().FirstTensor(ShardArrays::kWeights);
  if (!weight.empty()) weight = "weight of " + weight;
  MUSTER_ASSIGN_OR_RETURN(NonFiniteOrigin origin, CompareFindings(weight, world));
  if (origin.rank < 0) {
    const int lost = engine.non_finite().FirstLoss();
    const std::string own = lost < 0 ? "" : "loss of " + describe(lost);
    MUSTER_ASSIGN_OR_RETURN(origin, CompareFindings(own, world));
  }
  if (origin.rank < 0 && std::isfinite(loss)) {
    MUSTER_ASSIGN_OR_RETURN(const std::string gradient, OwnGradients(engine, describe, repeat));
    MUSTER_ASSIGN_OR_RETURN(origin, CompareFindings(gradient, world));
  }
  if (origin.rank >= 0) return origin;
  const std::string sum = engine.non_finite().FirstTensor(ShardArrays::kGradients);
  MUSTER_ASSIGN_OR_RETURN(origin, CompareFindings(sum, world));
  if (origin.rank < 0) return origin;
  return NonFiniteOrigin{.found = "the sum over the step of gradient of " + origin.found};
}

NonFiniteGuard::Verdict NonFiniteGuard::Judge(const NonFiniteStep& step) {
  ++in_a_row_;
  const std::string what = WhatHappened(step);
  if (policy_ == NonFinitePolicy::kStop || IsWeight(step))
    return {.ends_job = true, .message = what + "; " + Advice(step)};
  if (in_a_row_ >= kMostInARow)
    return {.ends_job = true,
            .message = what + "; it is the third such step in a row; " + Advice(step)};
  return {.message = what + "; the step is skipped"};
}

}  // namespace muster
