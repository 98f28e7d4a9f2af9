// Evaluation between steps: losses of the rows that the job sets aside, texts that the model
// continues, and the state of the best evaluation.
//
// Collective; the trainer's thread of every rank. Nothing of the training changes by an evaluation.
// It shows that the rank moves, and ends early where the generation is called off. What follows
// from it is a pure function of numbers that are equal on all ranks, and of the history, which is
// part of the cursor: a resumed job goes on counting where it was.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/core/train_status.h"
#include "trainer/data/eval_loader.h"
#include "trainer/fsdp/fsdp_engine.h"
#include "trainer/report/eval_metrics.h"
#include "trainer/train/run_context.h"

namespace muster {

// Adds the evaluation of `step`. True: no earlier loss was as low. One that is not finite is never
// better than another.
bool NoteEvaluation(const EarlyStopSpec& spec, Step step, double loss, EvalHistory* history);
// Whether the last `patience` evaluations were no better, by min_delta, than what came before; and
// why training ends then, for people.
bool EndsEarly(const EarlyStopSpec& spec, const EvalHistory& history);
std::string EarlyEndText(const EvalHistory& history, Step max_steps);

// Equal on all ranks, but for the time.
struct Evaluation {
  EvalNumbers numbers;
  double seconds = 0;
  EvalHistory history;  // this evaluation included
  bool is_best = false;
  bool ends_early = false;  // nothing better was found for long enough
};

// Looks at all rows with the state of `step`.
TrainResult<Evaluation> Evaluate(const RunContext& run, FsdpEngine& engine, const EvalLoader& rows,
                                 Step step, EvalHistory history);

// What follows each prompt of run.inputs->samples, up to train.eval.max_new_tokens; step and
// generation are left out.
TrainResult<std::vector<GeneratedSample>> GenerateSamples(const RunContext& run, FsdpEngine& engine,
                                                          std::span<const SamplePrompt> prompts);

// A fault may have come after steps behind the best evaluation were sealed and before its
// checkpoint was written. What counts then is the best one that is there, so that a state that is
// better than that is saved: the history with that one as its best.
Result<EvalHistory> ForgetLostBest(const RunContext& run, EvalHistory history);

// Makes the engine's state that of the best checkpoint, if there is one; no step follows. What
// training goes on from after a fault stays the last one. No save is in flight.
TrainStatus TakeBest(const RunContext& run, FsdpEngine& engine, const EvalHistory& found);

}  // namespace muster
