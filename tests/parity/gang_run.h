// Runs of the sharded engine with the ranks as threads, on the random model of test_model.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/parity/test_model.h"
#include "trainer/core/model_config.h"
#include "trainer/fsdp/fsdp_engine.h"

namespace muster::parity {

inline constexpr double kLr = 3e-3;
inline constexpr int kMicroBatches = 2;

OptimizerSpec TestOptimizer();

// The arrays of one rank, as bytes.
using Arrays = std::vector<std::vector<std::byte>>;

// What one rank did.
struct RankRun {
  std::vector<StepNumbers> numbers;  // of every step
  // Before the first step and after each, where the ranks evaluate.
  std::vector<EvalNumbers> evaluations;
  std::vector<std::vector<std::int32_t>> next_tokens;
  Arrays arrays;                // weights and moments at the end
  std::vector<float> exported;  // rank 0: every tensor, in order
  double loss_scale = 0;        // at the end
  bool frozen_kept = false;     // frozen weights were on all shelves
};

struct GangOptions {
  int world_size = 1;
  int first_step = 0;
  int steps = 1;
  TestModelOptions model;
  FsdpSpec fsdp{.mixed_precision = MixedPrecision::kFp32};
  OptimizerSpec optimizer = TestOptimizer();
  int ranks_per_node = 1;
  double loss_scale = 0;  // to begin with, in fp16; 0: the engine's own
  // On a device whose copies are made as late as their waits allow.
  bool apart_from_host = false;
  // As ranks of one host do; otherwise weights and gradients travel.
  bool shares_memory = true;
  const std::vector<RankRun>* resume_from = nullptr;
  // The rows of each micro-batch as documents of one row.
  bool packed = false;
  // Micro-batches of a step over all ranks, the same at every number of ranks and numbered as a
  // training's; 0: kMicroBatches of its own for each rank, without numbers.
  int shared_batches = 0;
  std::uint64_t seed = 42;
  std::string model_dir = {};  // of frozen weights; empty: RunGang's own
  // By rank: where frozen weights are looked for, and left. Null: nowhere.
  std::vector<RetainedWeights>* shelves = nullptr;
  std::uint64_t frozen_source = 1;
  // Before this step the gang is lost in the middle of it and formed again; -1: never.
  int broken_step = -1;
  // Before the first step and after each EvaluationBatches are evaluated, and EvaluationTexts gone
  // on from.
  bool evaluates = false;
  // After this step the gang is lost in the middle of an evaluation and formed again; -1: never.
  int broken_evaluation = -1;
};

// The same rows for any number of ranks, which take them in turn.
std::vector<MicroBatch> EvaluationBatches(const ModelConfig& config);
std::vector<std::vector<std::int32_t>> EvaluationTexts();

std::vector<RankRun> RunGang(const GangOptions& options);

// What RunGang's ranks are made of.
FsdpOptions EngineOptions(const GangOptions& options);
void LoadWeights(const ReferenceTrainer::Weights& weights, FsdpEngine& engine);
void LoadRandomWeights(const TestModelOptions& model, FsdpEngine& engine);
void LoadRandomWeights(const ModelConfig& config, FsdpEngine& engine);
Arrays TakenFrom(const FsdpEngine& engine);
// All micro-batches of one rank's step, up to its numbers.
Result<StepNumbers> RunMicroBatches(FsdpEngine& engine, const GangOptions& options, int rank,
                                    int step);

// The micro-batches of all ranks at a step of RunGang.
std::vector<MicroBatch> AllBatches(const ModelConfig& config, int step, int world_size);

double Relative(double got, double want);
std::vector<double> Losses(const RankRun& run);
// The ranks of `after`, which began with `whole`'s state before `first_step`, end as those of
// `whole`, bit for bit.
void ExpectResumedAlike(const std::vector<RankRun>& whole, const std::vector<RankRun>& after,
                        int first_step);

}  // namespace muster::parity
