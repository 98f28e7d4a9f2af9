// FsdpEngine evaluates rows, goes on from texts, and takes another state to be exported.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "trainer/fsdp/fsdp_engine.h"
#include "trainer/fsdp/schedule.h"
#include "trainer/fsdp/state_snapshots.h"
#include "trainer/fsdp/step_batch.h"

namespace muster {

double EvalNumbers::perplexity() const { return std::exp(loss); }

double EvalNumbers::accuracy() const {
  return labels > 0 ? static_cast<double>(correct) / static_cast<double>(labels) : 0;
}

Result<HeadTask> FsdpEngine::ForwardAlone(const MicroBatch& batch,
                                          const LabelledPositions& labelled) {
  Result<HeadTask> task = schedule_->Forward(batch, labelled);
  if (!task.ok()) return AbandonStep(task.status());
  // An update that was under way has ended, and evaluations take long.
  SealUpdated();
  return task;
}

Status FsdpEngine::Evaluate(const MicroBatch& batch) {
  const at::NoGradGuard no_grad;
  const MicroBatch padded = PadToFewLengths(batch);
  MUSTER_ASSIGN_OR_RETURN(const HeadTask task, ForwardAlone(padded, FindLabels(padded)));
  at::Tensor loss = eval_sums_.narrow(0, kEvalLoss, 1);
  at::Tensor correct = eval_sums_.narrow(0, kEvalCorrect, 1);
  schedule_->head().Measure(task, loss, correct);
  eval_sums_.narrow(0, kEvalLabels, 1).add_(batch.label_count);
  return OkStatus();
}

Result<EvalNumbers> FsdpEngine::FinishEvaluation() {
  at::Tensor sums = eval_sums_.cpu().clone();
  eval_sums_.zero_();
  if (Status added = AddUp(sums); !added.ok()) return AbandonStep(std::move(added));
  const double* values = sums.const_data_ptr<double>();
  return EvalNumbers{.loss = values[kEvalLoss] / values[kEvalLabels],
                     .labels = static_cast<std::int64_t>(values[kEvalLabels]),
                     .correct = static_cast<std::int64_t>(values[kEvalCorrect])};
}

// Ranks on other processors may round otherwise, and must not go on with other tokens.
Result<std::vector<std::int32_t>> FsdpEngine::NextTokens(
    const std::vector<std::vector<std::int32_t>>& texts, std::int64_t words) {
  const at::NoGradGuard no_grad;
  const TextBatch prepared = BatchOfTexts(texts);
  MUSTER_ASSIGN_OR_RETURN(const HeadTask task, ForwardAlone(prepared.batch, prepared.last));
  at::Tensor chosen = schedule_->head().Choose(task, words).to(at::kDouble).cpu();
  if (mesh_.world().rank() != 0) chosen.zero_();
  if (Status shared = AddUp(chosen); !shared.ok()) return AbandonStep(std::move(shared));
  const double* ids = chosen.const_data_ptr<double>();
  return std::vector<std::int32_t>(ids, ids + chosen.numel());
}

Status FsdpEngine::ReplaceState() {
  SealUpdated();
  if (snapshots_ != nullptr) MUSTER_RETURN_IF_ERROR(snapshots_->Finish());
  // What was sealed before the last step goes now, and until all ranks have sealed that one it may
  // be what they go on from.
  MUSTER_RETURN_IF_ERROR(mesh_.world().Barrier());
  weights_->Invalidate();
  state_->BeginUpdate();
  return OkStatus();
}

}  // namespace muster
