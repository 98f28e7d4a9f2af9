#include "trainer/loop/input_agreement.h"

#include <array>
#include <string>

#include <xxhash.h>

namespace muster {
namespace {

enum Input { kModel, kRows, kSettings, kInputCount };

// What steps, updates and checkpoints depend on.
std::uint64_t FingerprintOf(const TrainSpec& train) {
  const double values[] = {static_cast<double>(train.seed),
                           static_cast<double>(train.schedule.max_steps),
                           train.schedule.epochs,
                           train.schedule.warmup_ratio,
                           train.schedule.kind == "constant" ? 1.0 : 0.0,
                           static_cast<double>(train.batch.per_rank),
                           static_cast<double>(train.batch.accumulation),
                           train.data.shuffle ? 1.0 : 0.0,
                           train.fsdp.mixed_precision == MixedPrecision::kBf16 ? 1.0 : 0.0,
                           train.optimizer.lr,
                           train.optimizer.beta1,
                           train.optimizer.beta2,
                           train.optimizer.eps,
                           train.optimizer.weight_decay,
                           train.optimizer.grad_clip,
                           static_cast<double>(train.checkpoint.every)};
  return XXH3_64bits(values, sizeof values);
}

Failure Differs(Input input, const JobSpec& spec, const TrainInputs& inputs, int rank) {
  const std::string here = "rank " + std::to_string(rank);
  if (input == kModel) {
    return InputFailure("model", InvalidArgument("config.json is not the same on all ranks: " +
                                                 here + " has read " + inputs.model_dir +
                                                 "/config.json; copy one model to every node"));
  }
  if (input == kRows) {
    return InputFailure(
        "data", InvalidArgument("the training rows are not the same on all ranks: " + here +
                                " has read " + std::to_string(inputs.dataset->size()) +
                                " rows with " + std::to_string(inputs.dataset->stats().tokens) +
                                " tokens from " + ResolvePath(spec, spec.train->data.train) +
                                "; copy one file, and one tokenizer.json, to every node"));
  }
  return InputFailure("config", InvalidArgument("the train block of the job file is not the same "
                                                "on all ranks; copy one job file to every node"));
}

}  // namespace

std::optional<Failure> AgreeOnInputs(const JobSpec& spec, const TrainInputs& inputs,
                                     Communicator& communicator) {
  const std::array<std::uint64_t, kInputCount> mine = {
      XXH3_64bits(inputs.config.raw_json.data(), inputs.config.raw_json.size()),
      inputs.dataset->Fingerprint(), FingerprintOf(*spec.train)};
  // The largest of x and of its complement: equal on all ranks only if they belong together.
  std::array<std::int64_t, 2 * kInputCount> largest;
  for (int i = 0; i < kInputCount; ++i) {
    largest[2 * i] = static_cast<std::int64_t>(mine[i]);
    largest[2 * i + 1] = ~largest[2 * i];
  }
  const Status reduced =
      communicator.AllReduce(largest.data(), largest.size(), ElementType::kInt64, ReduceOp::kMax)
          ->Wait();
  if (!reduced.ok()) return CollectiveFailure(reduced);
  for (int i = 0; i < kInputCount; ++i) {
    if (largest[2 * i] != ~largest[2 * i + 1]) {
      return Differs(static_cast<Input>(i), spec, inputs, communicator.rank());
    }
  }
  return std::nullopt;
}

}  // namespace muster
