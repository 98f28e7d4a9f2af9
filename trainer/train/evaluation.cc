#include "trainer/train/evaluation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include "common/base/files.h"
#include "trainer/comm/long_work.h"
#include "trainer/state/checkpoint/init_from.h"
#include "trainer/state/checkpoint/manifest.h"

namespace muster {
namespace {

std::string LossText(double loss) {
  char text[40];
  std::snprintf(text, sizeof text, "%.4f", loss);
  return text;
}

// A worker reads a checkpoint again before it writes the manifest.
constexpr Duration kManifestTimeout = std::chrono::minutes(5);
static_assert(kManifestTimeout < LongWork::kLimit, "the other ranks wait in a collective");
constexpr Duration kManifestRetry = std::chrono::milliseconds(200);

// All that are committed: a worker writes the manifest of one some time after the coordinator has
// begun to offer it.
Result<std::vector<CheckpointManifest>> KnownManifests(const RunContext& run) {
  MUSTER_ASSIGN_OR_RETURN(FoundManifests found, FindManifests(run.checkpoint_dir()));
  if (run.env.resume_file.empty()) return std::move(found.manifests);
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(run.env.resume_file));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<CheckpointManifest> offered,
                          ManifestListFromJson(text));
  found.manifests.insert(found.manifests.end(), offered.begin(), offered.end());
  return std::move(found.manifests);
}

// Rank 0's half of ForgetLostBest.
void CountWrittenBest(const RunContext& run, EvalHistory* history) {
  const Result<std::vector<CheckpointManifest>> known = KnownManifests(run);
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
  run.Note("info", text);
}

// Rank 0's: as FindManifests has them, once the one of the best evaluation is among them, or not
// any more to be waited for: manifests are written in the order of their checkpoints. Without a
// supervisor this rank has written it itself by now.
Result<std::vector<CheckpointManifest>> AwaitBestManifest(const RunContext& run, Step best_step) {
  const bool waits = run.supervisor.attached() && best_step > 0;
  const Deadline deadline = Deadline::After(waits ? kManifestTimeout : Duration::zero());
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(FoundManifests found, FindManifests(run.checkpoint_dir()));
    const bool decided = std::any_of(
        found.manifests.begin(), found.manifests.end(), [&](const CheckpointManifest& each) {
          return (each.step == best_step && each.eval_loss.has_value()) ||
                 (each.step > best_step && each.generation == run.env.generation);
        });
    if (decided || deadline.Expired()) return std::move(found.manifests);
    run.progress.Move();
    MUSTER_RETURN_IF_ERROR(
        run.supervisor.AwaitCalledOff(run.env.generation, Deadline::After(kManifestRetry)));
  }
}

// Step and generation of the best checkpoint, equal on all ranks; step 0: there is none.
Result<std::array<std::int64_t, 2>> AgreeOnBest(const RunContext& run, Step best_step) {
  std::array<std::int64_t, 2> chosen = {0, 0};
  if (run.is_first()) {
    const Result<std::vector<CheckpointManifest>> manifests = AwaitBestManifest(run, best_step);
    if (manifests.status().code() == StatusCode::kCancelled) return manifests.status();
    if (!manifests.ok()) run.Note("warning", manifests.status().ToString());
    const CheckpointManifest* best = manifests.ok() ? BestOf(*manifests) : nullptr;
    if (best != nullptr) chosen = {best->step, best->generation};
  }
  MUSTER_RETURN_IF_ERROR(run.communicator.Broadcast(chosen.data(), sizeof chosen, 0)->Wait());
  return chosen;
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

bool NoteEvaluation(const EarlyStopSpec& spec, Step step, double loss, EvalHistory* history) {
  if (!std::isfinite(loss)) loss = std::numeric_limits<double>::infinity();
  history->step = step;
  history->loss = loss;
  // Measured from where it last counted, so that many small gains together count as one. Infinity
  // less min_delta is infinity: the first finite loss is better than none.
  if (loss < history->reference_loss - spec.min_delta) {
    history->reference_loss = loss;
    history->without_better = 0;
  } else {
    ++history->without_better;
  }
  if (!(loss < history->best_loss)) return false;
  history->best_loss = loss;
  history->best_step = step;
  return true;
}

bool EndsEarly(const EarlyStopSpec& spec, const EvalHistory& history) {
  return spec.patience > 0 && history.without_better >= spec.patience;
}

std::string EarlyEndText(const EvalHistory& history, Step max_steps) {
  std::string text = "training ends after step " + std::to_string(history.step) + " of " +
                     std::to_string(max_steps) + ": " + std::to_string(history.without_better) +
                     " evaluations in a row were no better";
  if (history.best_step >= 0) {
    text += "; the lowest loss was " + LossText(history.best_loss) + " after step " +
            std::to_string(history.best_step);
  }
  return text;
}

TrainResult<Evaluation> Evaluate(const RunContext& run, FsdpEngine& engine, const EvalLoader& rows,
                                 Step step, EvalHistory history) {
  const TimePoint begin = run.clock.Now();
  run.progress.EnterPhase(TrainPhase::kEvaluating);
  for (std::int64_t round = 0; round < rows.rounds(); ++round) {
    MUSTER_RETURN_IF_ERROR(run.CalledOff());
    MUSTER_ASSIGN_OR_RETURN(const MicroBatch batch, FromInput(FailureKind::kData, rows.Get(round)));
    MUSTER_RETURN_IF_ERROR(engine.Evaluate(batch));
    run.progress.Move();
  }
  MUSTER_ASSIGN_OR_RETURN(const EvalNumbers numbers, engine.FinishEvaluation());
  const EarlyStopSpec& early_stop = run.train().eval.early_stop;
  const bool is_best = NoteEvaluation(early_stop, step, numbers.loss, &history);
  return Evaluation{.numbers = numbers,
                    .seconds = ToSeconds(run.clock.Now() - begin),
                    .history = history,
                    .is_best = is_best,
                    .ends_early = EndsEarly(early_stop, history)};
}

// The whole text goes through the model for every token: shards keep no keys and values.
TrainResult<std::vector<GeneratedSample>> GenerateSamples(const RunContext& run, FsdpEngine& engine,
                                                          std::span<const SamplePrompt> prompts) {
  const SamplePrompts& samples = *run.inputs->samples;
  std::vector<std::vector<std::int32_t>> texts;
  for (const SamplePrompt& prompt : prompts) texts.push_back(prompt.ids);
  std::vector<bool> ended(texts.size(), false);
  for (int made = 0; made < run.train().eval.max_new_tokens; ++made) {
    const OpenTexts open = FindOpen(texts, ended, samples.max_tokens());
    if (open.texts.empty()) break;
    MUSTER_RETURN_IF_ERROR(run.CalledOff());
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::int32_t> next,
                            engine.NextTokens(open.texts, samples.words()));
    for (std::size_t i = 0; i < open.numbers.size(); ++i) {
      const std::size_t number = open.numbers[i];
      ended[number] = samples.Ends(next[i]);
      if (!ended[number]) texts[number].push_back(next[i]);
    }
    run.progress.Move();
  }
  std::vector<GeneratedSample> made;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const SamplePrompt& prompt = prompts[i];
    const auto after = texts[i].begin() + static_cast<std::ptrdiff_t>(prompt.ids.size());
    const std::vector<std::int32_t> ids(after, texts[i].end());
    made.push_back({.prompt = prompt.text,
                    .text = samples.TextOf(prompt, ids),
                    .tokens = static_cast<std::int64_t>(ids.size()),
                    .ended = ended[i]});
  }
  return made;
}

Result<EvalHistory> ForgetLostBest(const RunContext& run, EvalHistory history) {
  if (!run.train().keeps_best() || history.best_step <= 0) return history;
  if (run.is_first()) CountWrittenBest(run, &history);
  MUSTER_RETURN_IF_ERROR(run.communicator.Broadcast(&history, sizeof history, 0)->Wait());
  return history;
}

TrainStatus TakeBest(const RunContext& run, FsdpEngine& engine, const EvalHistory& found) {
  MUSTER_ASSIGN_OR_RETURN(const auto best, AgreeOnBest(run, found.best_step));
  const auto [step, generation] = best;
  if (step == 0) {
    if (run.is_first()) {
      run.Note("warning", "no checkpoint has an evaluation; the last state is exported");
    }
    return {};
  }
  MUSTER_RETURN_IF_ERROR(engine.ReplaceState());
  const Result<TrainCursor> read = InitFrom(
      run.communicator, run.checkpoint_dir() + "/" + CheckpointDirectoryName(step, generation),
      engine.state().CheckpointArrays(),
      {.memory = engine.state().array_memory(), .on_read = run.on_moved()});
  if (!read.ok()) {
    return FromSharedInput(
        FailureKind::kModel,
        read.status().WithContext("train.output.export: best (last exports the last state)"));
  }
  if (run.is_first()) {
    run.Note("info", "exports the state of step " + std::to_string(step) +
                         ", whose evaluation loss " + LossText(read->evaluations.loss) +
                         " is the lowest of those that have a checkpoint");
  }
  return {};
}

}  // namespace muster
