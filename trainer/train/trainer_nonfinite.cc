// Of trainer.h: a step whose numbers are not finite.
#include <cmath>
#include <utility>

#include "common/control_pipe/trainer_protocol.h"
#include "trainer/train/trainer.h"

namespace muster {

// The step of these numbers leaves the weights as they are, or ends the job.
std::optional<Failure> Trainer::JudgeNonFinite(const StepNumbers& numbers) {
  parts_.progress.CountNonFinite();
  NonFiniteStep step{.number = cursor_.step + 1,
                     .loss = numbers.loss,
                     .grad_norm = numbers.grad_norm,
                     .untouched_source = untouched_source_};
  int culprit = -1;
  if (auto failure = FindNonFinite(&step, &culprit)) return failure;
  const NonFiniteGuard::Verdict verdict = nonfinite_.Judge(step);
  if (verdict.ends_job) {
    return Failure{.kind = "nonfinite",
                   .exit_code = kExitNonFinite,
                   .status = FailedPrecondition(verdict.message),
                   .symptom = culprit >= 0 && culprit != env_.rank};
  }
  if (is_first()) Note("warning", verdict.message);
  return std::nullopt;
}

// Weights before losses before gradients: each makes those behind it what they are.
std::optional<Failure> Trainer::FindNonFinite(NonFiniteStep* step, int* culprit) {
  std::string weight = engine_->FirstNonFinite(ShardArrays::kWeights);
  if (!weight.empty()) weight = "weight of " + weight;
  Result<NonFiniteOrigin> origin = CompareFindings(weight, parts_.communicator);
  if (origin.ok() && origin->rank < 0) origin = CompareFindings(OwnLoss(), parts_.communicator);
  if (origin.ok() && origin->rank < 0 && std::isfinite(step->loss)) {
    std::string gradient;
    if (auto failure = RepeatForGradients(&gradient)) return failure;
    origin = CompareFindings(gradient, parts_.communicator);
  }
  if (origin.ok() && origin->rank >= 0) {
    *culprit = origin->rank;
    step->where = DescribeOrigin(*origin);
    return std::nullopt;
  }
  if (!origin.ok()) return CollectiveFailure(origin.status());
  origin = CompareFindings(engine_->FirstNonFinite(ShardArrays::kGradients), parts_.communicator);
  if (!origin.ok()) return CollectiveFailure(origin.status());
  if (origin->rank >= 0) step->where = "the sum over the step of gradient of " + origin->found;
  return std::nullopt;
}

std::string Trainer::OwnLoss() {
  const int micro_batch = engine_->FirstNonFiniteLoss();
  if (micro_batch < 0) return "";
  return "loss of " + DescribeMicroBatch(micro_batch);
}

// The gradients of this step are gone into sums. They are made once more, and looked at before they
// are added up: that costs a step's time, and only where one is lost anyway.
std::optional<Failure> Trainer::RepeatForGradients(std::string* found) {
  engine_->WatchGradients(true);
  std::optional<Failure> failure = RunMicroBatches();
  engine_->WatchGradients(false);
  if (failure) return failure;
  const Result<StepNumbers> numbers = engine_->FinishGradients();
  if (!numbers.ok()) return CollectiveFailure(numbers.status());
  const OwnGradient& gradient = engine_->first_non_finite_gradient();
  if (gradient.micro_batch < 0) return std::nullopt;
  *found = "gradient of " + gradient.tensor + ", " + DescribeMicroBatch(gradient.micro_batch);
  return std::nullopt;
}

std::string Trainer::DescribeMicroBatch(int number) {
  const std::string text = "micro-batch " + std::to_string(number);
  const Result<MicroBatch> batch = loader_->Get(cursor_.step, number);
  if (!batch.ok() || batch->sample_ids.empty()) return text;
  return text + " (" + inputs().dataset->Describe(batch->sample_ids) + ")";
}

}  // namespace muster
