// Of trainer.h: evaluations between steps, what follows from them, samples, the best state.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <limits>
#include <utility>

#include "common/base/files.h"
#include "trainer/comm/long_work.h"
#include "trainer/report/eval_metrics.h"
#include "trainer/state/checkpoint/init_from.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/train/evaluation_policy.h"
#include "trainer/train/trainer.h"

namespace muster {
namespace {

// A worker reads a checkpoint again before it writes the manifest.
constexpr Duration kManifestTimeout = std::chrono::minutes(5);
static_assert(kManifestTimeout < LongWork::kLimit, "the other ranks wait in a collective");
constexpr Duration kManifestRetry = std::chrono::milliseconds(200);

std::string LossText(double loss) {
  char text[40];
  std::snprintf(text, sizeof text, "%.4f", loss);
  return text;
}

// Texts that are gone on from, each until it ends.
struct OpenTexts {
  std::vector<std::size_t> numbers;  // of those that have not ended
  std::vector<std::vector<std::int32_t>> texts;
};

OpenTexts FindOpen(const std::vector<std::vector<std::int32_t>>& texts,
                   const std::vector<bool>& ended, std::int64_t max_tokens) {
  OpenTexts open;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (ended[i] || static_cast<std::int64_t>(texts[i].size()) >= max_tokens) continue;
    open.numbers.push_back(i);
    open.texts.push_back(texts[i]);
  }
  return open;
}

}  // namespace

// A step that a resume begins with may still be without the evaluation that a fault has cut off.
bool Trainer::EvaluationIsDue() const {
  if (!eval_loader_ || stopping_ || cursor_.evaluations.step == cursor_.step) return false;
  if (cursor_.step == 0) return train().eval.at_start;
  return cursor_.step % train().eval_every() == 0 || cursor_.step >= max_steps_;
}

std::optional<Failure> Trainer::Evaluate() {
  const TimePoint begin = parts_.clock.Now();
  parts_.progress.EnterPhase(TrainPhase::kEvaluating);
  for (std::int64_t round = 0; round < eval_loader_->rounds(); ++round) {
    if (auto failure = CheckCalledOff()) return failure;
    const Result<MicroBatch> batch = eval_loader_->Get(round);
    if (!batch.ok()) return InputFailure("data", batch.status());
    const Status status = engine_->Evaluate(*batch);
    if (!status.ok()) return CollectiveFailure(status);
    parts_.progress.Move();
  }
  const Result<EvalNumbers> numbers = engine_->FinishEvaluation();
  if (!numbers.ok()) return CollectiveFailure(numbers.status());
  const EarlyStopSpec& early_stop = train().eval.early_stop;
  const bool is_best =
      NoteEvaluation(early_stop, cursor_.step, numbers->loss, &cursor_.evaluations);
  LogEvaluation(*numbers, ToSeconds(parts_.clock.Now() - begin));
  if (auto failure = ShowSamples()) return failure;
  ended_early_ = EndsEarly(early_stop, cursor_.evaluations);
  if (ended_early_) NoteEarlyEnd();
  return is_best ? SaveBest() : std::nullopt;
}

void Trainer::LogEvaluation(const EvalNumbers& numbers, double seconds) {
  if (!logs_) return;
  const EvalMetrics metrics{.step = cursor_.step,
                            .max_steps = max_steps_,
                            .loss = numbers.loss,
                            .perplexity = numbers.perplexity(),
                            .accuracy = numbers.accuracy(),
                            .tokens = numbers.labels,
                            .seconds = seconds,
                            .history = cursor_.evaluations,
                            .generation = checkpointer_->generation(),
                            .world_size = env_.world_size};
  WriteLog([metrics](RunLogs& logs) { return logs.Write(metrics); }, EvalLine(metrics) + "\n");
}

void Trainer::NoteEarlyEnd() {
  if (!is_first() || cursor_.step >= max_steps_) return;
  const EvalHistory& found = cursor_.evaluations;
  std::string text = "training ends after step " + std::to_string(cursor_.step) + " of " +
                     std::to_string(max_steps_) + ": " + std::to_string(found.without_better) +
                     " evaluations in a row were no better";
  if (found.best_step >= 0) {
    text += "; the lowest loss was " + LossText(found.best_loss) + " after step " +
            std::to_string(found.best_step);
  }
  Note("info", text);
}

// It waits for the checkpoint before, so that it is never left out.
std::optional<Failure> Trainer::SaveBest() {
  if (!train().keeps_best() || cursor_.step == 0) return std::nullopt;
  // One of this step that is there already does not have its evaluation.
  saved_step_ = -1;
  if (Done()) return std::nullopt;  // SaveLast's
  if (auto failure = DrainSavesTogether()) return failure;
  return Save();
}

// In groups that need no more memory than a micro-batch.
std::optional<Failure> Trainer::ShowSamples() {
  if (!inputs().samples) return std::nullopt;
  const std::vector<SamplePrompt>& prompts = inputs().samples->prompts();
  const auto at_once = static_cast<std::size_t>(train().batch.per_rank);
  for (std::size_t first = 0; first < prompts.size(); first += at_once) {
    const std::size_t count = std::min(at_once, prompts.size() - first);
    if (auto failure = GoOnFrom({prompts.data() + first, count})) return failure;
  }
  return std::nullopt;
}

// The whole text goes through the model for every token: shards keep no keys and values.
std::optional<Failure> Trainer::GoOnFrom(std::span<const SamplePrompt> prompts) {
  const SamplePrompts& samples = *inputs().samples;
  std::vector<std::vector<std::int32_t>> texts;
  for (const SamplePrompt& prompt : prompts) texts.push_back(prompt.ids);
  std::vector<bool> ended(texts.size(), false);
  for (int made = 0; made < train().eval.max_new_tokens; ++made) {
    const OpenTexts open = FindOpen(texts, ended, samples.max_tokens());
    if (open.texts.empty()) break;
    if (auto failure = CheckCalledOff()) return failure;
    const Result<std::vector<std::int32_t>> next = engine_->NextTokens(open.texts, samples.words());
    if (!next.ok()) return CollectiveFailure(next.status());
    for (std::size_t i = 0; i < open.numbers.size(); ++i) {
      const std::size_t number = open.numbers[i];
      ended[number] = samples.Ends((*next)[i]);
      if (!ended[number]) texts[number].push_back((*next)[i]);
    }
    parts_.progress.Move();
  }
  for (std::size_t i = 0; i < texts.size(); ++i) LogSample(prompts[i], texts[i], ended[i]);
  return std::nullopt;
}

void Trainer::LogSample(const SamplePrompt& prompt, const std::vector<std::int32_t>& text,
                        bool ended) {
  if (!logs_) return;
  const auto after = text.begin() + static_cast<std::ptrdiff_t>(prompt.ids.size());
  const std::vector<std::int32_t> ids(after, text.end());
  const GeneratedSample sample{.step = cursor_.step,
                               .prompt = prompt.text,
                               .text = inputs().samples->TextOf(prompt, ids),
                               .tokens = static_cast<std::int64_t>(ids.size()),
                               .ended = ended,
                               .generation = checkpointer_->generation()};
  WriteLog([sample](RunLogs& logs) { return logs.Write(sample); },
           "sample  \"" + sample.prompt + "\" -> \"" + sample.text + "\"\n");
}

// All that are committed: a worker writes the manifest of one some time after the coordinator has
// begun to offer it.
Result<std::vector<CheckpointManifest>> Trainer::KnownManifests() const {
  MUSTER_ASSIGN_OR_RETURN(FoundManifests found, FindManifests(checkpoint_dir_));
  if (env_.resume_file.empty()) return std::move(found.manifests);
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(env_.resume_file));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<CheckpointManifest> offered,
                          ManifestListFromJson(text));
  found.manifests.insert(found.manifests.end(), offered.begin(), offered.end());
  return std::move(found.manifests);
}

// Rank 0's half of ForgetLostBest.
void Trainer::CountWrittenBest(EvalHistory* history) {
  const Result<std::vector<CheckpointManifest>> known = KnownManifests();
  if (!known.ok()) return;  // it is not known to be lost
  const bool there = std::any_of(known->begin(), known->end(), [&](const auto& each) {
    return each.step == history->best_step && each.eval_loss.has_value();
  });
  if (there) return;
  std::string text = "the checkpoint of the best evaluation, of step " +
                     std::to_string(history->best_step) + ", is not there";
  const CheckpointManifest* const best = BestOf(*known);
  history->best_step = best != nullptr ? best->step : -1;
  history->best_loss = best != nullptr ? *best->eval_loss : std::numeric_limits<double>::infinity();
  if (best != nullptr) text += "; of those that are, step " + std::to_string(best->step) + "'s is";
  Note("info", text);
}

// A fault may have come after steps behind the best evaluation were sealed and before its
// checkpoint was written. What counts then is the best one that is there, so that a state that is
// better than that is saved.
std::optional<Failure> Trainer::ForgetLostBest() {
  EvalHistory& history = cursor_.evaluations;
  if (!train().keeps_best() || history.best_step <= 0) return std::nullopt;
  if (is_first()) CountWrittenBest(&history);
  if (parts_.communicator.size() == 1) return std::nullopt;
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  std::int64_t best[2] = {is_first() ? history.best_step : kLeast,
                          is_first() ? std::bit_cast<std::int64_t>(history.best_loss) : kLeast};
  const Status agreed =
      parts_.communicator.AllReduce(best, 2, ElementType::kInt64, ReduceOp::kMax)->Wait();
  if (!agreed.ok()) return CollectiveFailure(agreed);
  history.best_step = best[0];
  history.best_loss = std::bit_cast<double>(best[1]);
  return std::nullopt;
}

// Rank 0's: as FindManifests has them, once the one of the best evaluation is among them, or not
// any more to be waited for: manifests are written in the order of their checkpoints. Without a
// supervisor this rank has written it itself by now.
Result<std::vector<CheckpointManifest>> Trainer::AwaitBestManifest() {
  const Step best_step = cursor_.evaluations.best_step;
  const bool waits = parts_.supervisor.attached() && best_step > 0;
  const Deadline deadline = Deadline::After(waits ? kManifestTimeout : Duration::zero());
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(FoundManifests found, FindManifests(checkpoint_dir_));
    const bool decided = std::any_of(
        found.manifests.begin(), found.manifests.end(), [&](const CheckpointManifest& each) {
          return (each.step == best_step && each.eval_loss.has_value()) ||
                 (each.step > best_step && each.generation == env_.generation);
        });
    if (decided || deadline.Expired()) return std::move(found.manifests);
    parts_.progress.Move();
    MUSTER_RETURN_IF_ERROR(
        parts_.supervisor.AwaitCalledOff(env_.generation, Deadline::After(kManifestRetry)));
  }
}

// Step and generation of the best checkpoint, equal on all ranks; step 0: there is none.
Result<std::pair<Step, Generation>> Trainer::AgreeOnBest() {
  std::int64_t chosen[2] = {0, 0};
  if (is_first()) {
    const Result<std::vector<CheckpointManifest>> manifests = AwaitBestManifest();
    if (manifests.status().code() == StatusCode::kCancelled) return manifests.status();
    if (!manifests.ok()) Note("warning", manifests.status().ToString());
    const CheckpointManifest* best = manifests.ok() ? BestOf(*manifests) : nullptr;
    if (best != nullptr) {
      chosen[0] = best->step;
      chosen[1] = best->generation;
    }
  }
  if (parts_.communicator.size() > 1) {
    MUSTER_RETURN_IF_ERROR(
        parts_.communicator.AllReduce(chosen, 2, ElementType::kInt64, ReduceOp::kMax)->Wait());
  }
  return std::pair<Step, Generation>(chosen[0], chosen[1]);
}

// Makes the state that is exported the best one. What training goes on from after a fault stays the
// last one.
std::optional<Failure> Trainer::TakeBest() {
  const EvalHistory& found = cursor_.evaluations;
  if (train().output_export != ExportedState::kBest) return std::nullopt;
  if (found.best_step == cursor_.step) return std::nullopt;
  // Where that fails the best one may be there all the same.
  if (auto failure = DrainSavesTogether()) return failure;
  const Result<std::pair<Step, Generation>> best = AgreeOnBest();
  if (!best.ok()) return CollectiveFailure(best.status());
  const auto [step, generation] = *best;
  if (step == 0) {
    if (is_first()) Note("warning", "no checkpoint has an evaluation; the last state is exported");
    return std::nullopt;
  }
  const Status replaced = engine_->ReplaceState();
  if (!replaced.ok()) return CollectiveFailure(replaced);
  const std::string directory = checkpoint_dir_ + "/" + CheckpointDirectoryName(step, generation);
  const Result<TrainCursor> read = InitFrom(
      parts_.communicator, directory, engine_->state().CheckpointArrays(),
      {.memory = engine_->state().array_memory(), .on_read = [this] { parts_.progress.Move(); }});
  if (!read.ok()) {
    return SharedInputFailure(
        "model",
        read.status().WithContext("train.output.export: best (last exports the last state)"));
  }
  if (is_first()) {
    Note("info", "exports the state of step " + std::to_string(step) + ", whose evaluation loss " +
                     LossText(read->evaluations.loss) +
                     " is the lowest of those that have a checkpoint");
  }
  return std::nullopt;
}

}  // namespace muster
