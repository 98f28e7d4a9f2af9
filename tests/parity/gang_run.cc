#include "tests/parity/gang_run.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "common/base/testing/temp_dir.h"
#include "trainer/comm/group/testing/in_process_communicator.h"
#include "trainer/fsdp/export_stream.h"
#include "trainer/fsdp/load_weights.h"
#include "trainer/fsdp/retained_weights.h"
#include "trainer/model/stored_model.h"
#include "trainer/model/testing/late_copies_testing.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/scalar_type.h"

namespace muster::parity {
namespace {

// What the planner adds up is what the engine has allocated.
void ExpectPlaced(const FsdpEngine& engine) {
  const Placement& placed = engine.placement();
  const auto own = [](const FlatBuffer& buffer) {
    return buffer.memory == MemoryKind::kCommon ? 0 : buffer.bytes();
  };
  const StateBuffers& state = placed.state;
  const GradientBuffers& gradients = placed.gradients;
  const FlatBuffer& frozen = placed.frozen_gathered.buffer;
  const EngineMemory memory = engine.memory();
  EXPECT_EQ(memory.state, state.master.bytes() + state.exp_avg.bytes() + state.exp_avg_sq.bytes() +
                              state.gradient.bytes() + state.low_precision.bytes());
  EXPECT_EQ(memory.gathered, own(placed.gathered.buffer) + own(frozen));
  EXPECT_EQ(memory.frozen, placed.frozen_shards.bytes() +
                               (frozen.bytes() - own(frozen)) / placed.frozen.world_size());
  EXPECT_EQ(memory.gradients,
            gradients.slot_memory.bytes() + gradients.local.bytes() + gradients.travelling.bytes());
  EXPECT_EQ(memory.snapshots, placed.snapshots.bytes());
}

std::size_t Bytes(const ShardArray& array) {
  return static_cast<std::size_t>(array.count) * ElementSize(array.type);
}

// One rank's thread: its communicator, engine and results.
class RankThread {
 public:
  RankThread(InProcessGroup& group, int rank, const GangOptions& options, RankRun* run)
      : rank_(rank),
        options_(options),
        config_(TestConfig(options.model)),
        host_ops_(MakeCpuOps()),
        late_copies_(*host_ops_),
        ops_(options.apart_from_host ? static_cast<DeviceOps&>(late_copies_) : *host_ops_),
        communicator_(group.Join(rank)),
        run_(run) {}

  void Run() {
    at::set_num_threads(1);  // ranks share the cores
    Form(1);
    Make();
    LoadFrozen();
    if (options_.resume_from != nullptr) {
      PutBack((*options_.resume_from)[rank_].arrays);
    } else {
      LoadRandomWeights(options_.model, *engine_);
      engine_->WeightsLoaded();
    }
    if (options_.evaluates) Evaluate();
    const int end = options_.first_step + options_.steps;
    for (int step = options_.first_step; step < end; ++step) {
      if (step == options_.broken_step) LoseTheGang(step);
      RunStep(step);
      if (step == options_.broken_evaluation) LoseTheGangEvaluating();
      if (options_.evaluates) Evaluate();
    }
    engine_->WaitForUpdate();
    run_->arrays = TakenFrom(*engine_);
    run_->loss_scale = engine_->loss_scale().scale;
    Export();
  }

 private:
  void Form(Generation generation) {
    const Status formed = communicator_->Form(
        {.generation = generation, .rank = rank_, .world_size = options_.world_size},
        Deadline::After(std::chrono::seconds(30)));
    ASSERT_TRUE(formed.ok()) << formed.ToString();
  }

  void Make() {
    FsdpOptions options = EngineOptions(options_);
    if (options_.shelves != nullptr) options.retained_weights = &(*options_.shelves)[rank_];
    auto engine = FsdpEngine::Create(config_, *communicator_, ops_, std::move(options));
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *std::move(engine);
    ExpectPlaced(*engine_);
    if (options_.loss_scale > 0) engine_->RestoreLossScale({.scale = options_.loss_scale});
  }

  void LoadFrozen() {
    if (!options_.model.lora) return;
    const Result<SafetensorsModel> model = OpenModelWeights(config_, options_.model_dir);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    const Status loaded = engine_->LoadFrozen(&*model, {});
    ASSERT_TRUE(loaded.ok()) << loaded.ToString();
    run_->frozen_kept = engine_->frozen_kept();
  }

  void PutBack(const Arrays& from) {
    const std::vector<ShardArray> arrays = engine_->state().CheckpointArrays();
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      ASSERT_EQ(from[i].size(), Bytes(arrays[i]));
      std::memcpy(arrays[i].data, from[i].data(), from[i].size());
    }
    engine_->WeightsLoaded();
  }

  void RunStep(int step) {
    const Result<StepNumbers> numbers = RunMicroBatches(*engine_, options_, rank_, step);
    ASSERT_TRUE(numbers.ok()) << numbers.status().ToString();
    run_->numbers.push_back(*numbers);
    engine_->OptimizerStep(step + 1, kLr);
  }

  void Evaluate() {
    const std::vector<MicroBatch> batches = EvaluationBatches(config_);
    const auto count = static_cast<int>(batches.size());
    for (int first = 0; first < count; first += options_.world_size) {
      const int mine = first + rank_;
      const Status status = engine_->Evaluate(mine < count ? batches[mine] : NoRows());
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    const Result<EvalNumbers> numbers = engine_->FinishEvaluation();
    ASSERT_TRUE(numbers.ok()) << numbers.status().ToString();
    run_->evaluations.push_back(*numbers);
    const auto tokens = engine_->NextTokens(EvaluationTexts(), config_.vocab_size);
    ASSERT_TRUE(tokens.ok()) << tokens.status().ToString();
    run_->next_tokens.push_back(*tokens);
  }

  // As a loader has it.
  static MicroBatch NoRows() {
    MicroBatch batch;
    batch.rows = batch.length = 1;
    batch.input_ids = {0};
    batch.labels = {kIgnoredLabel};
    return batch;
  }

  // One micro-batch that all ranks finish, and one in which they lose the last rank.
  void LoseTheGang(int step) {
    const StepBatches batches = RandomBatches(config_, step, options_.world_size, kMicroBatches);
    ASSERT_TRUE(engine_->ForwardBackward(batches[rank_][0], 1.0, false).ok());
    // All have finished it before one is lost; who leaves the barrier first may cut the others off.
    (void)communicator_->Barrier();
    if (rank_ == options_.world_size - 1) communicator_->Abort(Cancelled("the test wants it"));
    Status status = engine_->ForwardBackward(batches[rank_][1], 1.0, true);
    if (status.ok()) status = engine_->FinishGradients().status();
    EXPECT_FALSE(status.ok());
    FormAgain();
  }

  // The same between two steps.
  void LoseTheGangEvaluating() {
    const std::vector<MicroBatch> batches = EvaluationBatches(config_);
    ASSERT_TRUE(engine_->Evaluate(batches[0]).ok());
    (void)communicator_->Barrier();
    if (rank_ == options_.world_size - 1) communicator_->Abort(Cancelled("the test wants it"));
    Status status = engine_->Evaluate(batches[1]);
    if (status.ok()) status = engine_->FinishEvaluation().status();
    EXPECT_FALSE(status.ok());
    FormAgain();
  }

  // With the state of the last step.
  void FormAgain() {
    engine_->WaitForUpdate();
    const Arrays state = TakenFrom(*engine_);
    engine_.reset();
    Form(2);
    Make();
    LoadFrozen();
    PutBack(state);
  }

  void Export() {
    if (!engine_->is_first_replica()) return;
    const Status exported = StreamTensors(
        engine_->layout(), engine_->state(), engine_->shard_group(),
        [this](const float* values, std::int64_t count) {
          run_->exported.insert(run_->exported.end(), values, values + count);
          return OkStatus();
        },
        [] { return OkStatus(); });
    EXPECT_TRUE(exported.ok()) << exported.ToString();
  }

  const int rank_;
  const GangOptions& options_;
  const ModelConfig config_;
  const std::unique_ptr<DeviceOps> host_ops_;
  LateCopies late_copies_;
  DeviceOps& ops_;
  const std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<FsdpEngine> engine_;
  RankRun* const run_;
};

// The rows one after the other in one row, each with its padding a document.
MicroBatch Packed(MicroBatch batch) {
  for (std::int64_t row = 0; row < batch.rows; ++row)
    batch.document_begins.push_back(row * batch.length);
  batch.length *= std::exchange(batch.rows, 1);
  return batch;
}

// As BatchLoader deals them out: in turn, and an empty one to whom none is left for.
StepBatches DealtBatches(const GangOptions& options, int step) {
  const int count = options.shared_batches, world = options.world_size;
  std::vector<MicroBatch> all = RandomBatches(TestConfig(options.model), step, 1, count)[0];
  StepBatches dealt(static_cast<std::size_t>(world));
  for (int place = 0; place < (count + world - 1) / world * world; ++place) {
    MicroBatch batch{.rows = 1, .length = 1, .input_ids = {0}, .labels = {kIgnoredLabel}};
    if (place < count) {
      batch = std::move(all[static_cast<std::size_t>(place)]);
      batch.number = std::int64_t{step} * count + place;
    }
    dealt[static_cast<std::size_t>(place % world)].push_back(std::move(batch));
  }
  return dealt;
}

}  // namespace

OptimizerSpec TestOptimizer() { return {.lr = kLr, .weight_decay = 0.1, .grad_clip = 0.5}; }

FsdpOptions EngineOptions(const GangOptions& options) {
  TrainSpec train;
  train.fsdp = options.fsdp;
  train.optimizer = options.optimizer;
  train.lora = options.model.lora;
  train.quantization = options.model.quantization;
  train.seed = options.seed;
  FsdpOptions made = OptionsOf(train, options.ranks_per_node);
  made.frozen_source = options.frozen_source;
  return made;
}

void LoadWeights(const ReferenceTrainer::Weights& weights, FsdpEngine& engine) {
  for (const ShardArray& array : engine.state().WeightArrays()) {
    const auto element = static_cast<std::int64_t>(ElementSize(array.type));
    for (const TensorInterval& interval : array.intervals) {
      at::Tensor place =
          at::from_blob(static_cast<char*>(array.data) + interval.array_offset * element,
                        {interval.count}, at::TensorOptions(ScalarTypeOf(array.type)));
      place.copy_(weights.at(interval.tensor).flatten().narrow(0, interval.begin, interval.count));
    }
  }
}

void LoadRandomWeights(const TestModelOptions& model, FsdpEngine& engine) {
  LoadWeights(RandomWeights(model), engine);
}

void LoadRandomWeights(const ModelConfig& config, FsdpEngine& engine) {
  LoadWeights(RandomWeights(config), engine);
}

Arrays TakenFrom(const FsdpEngine& engine) {
  Arrays taken;
  for (const ShardArray& array : engine.state().CheckpointArrays()) {
    const auto* data = static_cast<const std::byte*>(array.data);
    taken.emplace_back(data, data + Bytes(array));
  }
  return taken;
}

Result<StepNumbers> RunMicroBatches(FsdpEngine& engine, const GangOptions& options, int rank,
                                    int step) {
  const StepBatches batches =
      options.shared_batches > 0
          ? DealtBatches(options, step)
          : RandomBatches(TestConfig(options.model), step, options.world_size, kMicroBatches);
  double labels = 0, count = 0;
  for (const auto& of_rank : batches) {
    count += static_cast<double>(of_rank.size());
    for (const MicroBatch& batch : of_rank) labels += static_cast<double>(batch.label_count);
  }
  const std::size_t rounds = batches[rank].size();
  for (std::size_t m = 0; m < rounds; ++m) {
    const MicroBatch& batch = batches[rank][m];
    MUSTER_RETURN_IF_ERROR(engine.ForwardBackward(options.packed ? Packed(batch) : batch,
                                                  1.0 / labels, m + 1 == rounds, 1.0 / count));
  }
  return engine.FinishGradients();
}

std::vector<RankRun> RunGang(const GangOptions& given) {
  GangOptions options = given;
  TempDirForTest directory;
  if (options.model.lora && options.model_dir.empty()) {
    options.model_dir = directory.path();
    WriteModel(options.model, options.model_dir);
  }
  InProcessGroup group(options.world_size, options.shares_memory ? InProcessTransport::kSharedMemory
                                                                 : InProcessTransport::kRing);
  std::vector<RankRun> runs(options.world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.world_size; ++rank) {
    threads.emplace_back([&, rank] { RankThread(group, rank, options, &runs[rank]).Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  return runs;
}

std::vector<MicroBatch> AllBatches(const ModelConfig& config, int step, int world_size) {
  std::vector<MicroBatch> all;
  for (const auto& of_rank : RandomBatches(config, step, world_size, kMicroBatches)) {
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  return all;
}

std::vector<MicroBatch> EvaluationBatches(const ModelConfig& config) {
  constexpr int kOtherStep = 1000;  // no step of training
  constexpr int kParts = 3;
  return AllBatches(config, kOtherStep, kParts);
}

std::vector<std::vector<std::int32_t>> EvaluationTexts() { return {{1, 2, 3, 4, 5}, {6}}; }

double Relative(double got, double want) { return std::abs(got - want) / std::abs(want); }

std::vector<double> Losses(const RankRun& run) {
  std::vector<double> losses;
  for (const StepNumbers& numbers : run.numbers) losses.push_back(numbers.loss);
  return losses;
}

void ExpectResumedAlike(const std::vector<RankRun>& whole, const std::vector<RankRun>& after,
                        int first_step) {
  for (std::size_t r = 0; r < whole.size(); ++r) {
    EXPECT_TRUE(whole[r].arrays == after[r].arrays);
    const std::vector<double> losses = Losses(whole[r]);
    EXPECT_EQ(std::vector<double>(losses.begin() + first_step, losses.end()), Losses(after[r]));
  }
}

}  // namespace muster::parity
