// The sharded engine, its ranks as threads, against the plain reference.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/parity/reference.h"
#include "tests/parity/test_model.h"
#include "trainer/distributed/in_process_communicator.h"
#include "trainer/formats/safetensors.h"
#include "trainer/model/inference.h"
#include "trainer/model/llama_units.h"
#include "trainer/sharding/export_stream.h"
#include "trainer/sharding/fsdp_engine.h"

namespace muster::parity {
namespace {

constexpr int kMicroBatches = 2;
constexpr double kLr = 3e-3;

using Arrays = std::vector<std::vector<float>>;

// What one rank did.
struct RankRun {
  std::vector<StepNumbers> numbers;  // of every step
  Arrays arrays;                     // weights and moments at the end
  std::vector<float> exported;       // rank 0: every tensor, in order
};

struct RunOptions {
  int world_size = 1;
  int first_step = 0;
  int steps = 1;
  MixedPrecision precision = MixedPrecision::kFp32;
  bool tied = false;
  int blocks = 3;
  const std::vector<RankRun>* resume_from = nullptr;
  // Before this step the gang is lost in the middle of it and formed again; -1: never.
  int broken_step = -1;
};

OptimizerSpec TestOptimizer() { return {.lr = kLr, .weight_decay = 0.1, .grad_clip = 0.5}; }

void LoadWeights(const ReferenceTrainer::Weights& weights, const std::vector<ShardArray>& arrays) {
  for (const ShardArray& array : arrays) {
    for (const TensorInterval& interval : array.intervals) {
      const float* from = weights.at(interval.tensor).const_data_ptr<float>() + interval.begin;
      std::memcpy(static_cast<float*>(array.data) + interval.array_offset, from,
                  interval.count * sizeof(float));
    }
  }
}

void TakeState(const Arrays& from, const std::vector<ShardArray>& arrays) {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    ASSERT_EQ(static_cast<std::int64_t>(from[i].size()), arrays[i].count);
    std::memcpy(arrays[i].data, from[i].data(), arrays[i].count * sizeof(float));
  }
}

Status Form(Communicator& communicator, int rank, int world_size, Generation generation) {
  return communicator.Form({.generation = generation, .rank = rank, .world_size = world_size},
                           Deadline::After(std::chrono::seconds(30)));
}

// One micro-batch that all ranks finish, and one in which they lose the last rank.
void LoseTheGang(FsdpEngine& engine, Communicator& communicator, const StepBatches& batches) {
  const int rank = communicator.rank();
  ASSERT_TRUE(engine.ForwardBackward(batches[rank][0], 1.0).ok());
  if (rank == communicator.size() - 1) communicator.Abort(Cancelled("the test wants it"));
  EXPECT_FALSE(engine.ForwardBackward(batches[rank][1], 1.0).ok());
  const Status formed = Form(communicator, rank, communicator.size(), 2);
  ASSERT_TRUE(formed.ok()) << formed.ToString();
}

void RunSteps(FsdpEngine& engine, Communicator& communicator, const ModelConfig& config,
              const RunOptions& options, RankRun* run) {
  const int rank = communicator.rank();
  for (int step = options.first_step; step < options.first_step + options.steps; ++step) {
    const StepBatches batches = RandomBatches(config, step, options.world_size, kMicroBatches);
    if (step == options.broken_step) LoseTheGang(engine, communicator, batches);
    double labels = 0;
    for (const auto& of_rank : batches) {
      for (const MicroBatch& batch : of_rank) labels += static_cast<double>(batch.label_count);
    }
    for (const MicroBatch& batch : batches[rank]) {
      ASSERT_TRUE(engine.ForwardBackward(batch, 1.0 / labels).ok());
    }
    const Result<StepNumbers> numbers = engine.FinishGradients();
    ASSERT_TRUE(numbers.ok()) << numbers.status().ToString();
    run->numbers.push_back(*numbers);
    engine.OptimizerStep(step + 1, kLr);
  }
}

void RunRank(InProcessGroup& group, int rank, const RunOptions& options, RankRun* run) {
  at::set_num_threads(1);  // ranks share the cores
  const std::unique_ptr<Communicator> communicator = group.Join(rank);
  const Status formed = Form(*communicator, rank, options.world_size, 1);
  ASSERT_TRUE(formed.ok()) << formed.ToString();
  const ModelConfig config = TestConfig({.tied = options.tied, .blocks = options.blocks});
  const OptimizerSpec spec = TestOptimizer();
  const std::unique_ptr<FsdpEngine> engine =
      FsdpEngine::Create(config, *communicator,
                         {.precision = options.precision,
                          .adamw = {spec.beta1, spec.beta2, spec.eps, spec.weight_decay},
                          .grad_clip = spec.grad_clip});
  if (options.resume_from != nullptr) {
    TakeState((*options.resume_from)[rank].arrays, engine->state().CheckpointArrays());
  } else {
    LoadWeights(RandomWeights(config), engine->state().WeightArrays());
  }
  engine->WeightsLoaded();
  RunSteps(*engine, *communicator, config, options, run);
  for (const ShardArray& array : engine->state().CheckpointArrays()) {
    const auto* data = static_cast<const float*>(array.data);
    run->arrays.emplace_back(data, data + array.count);
  }
  const Status exported =
      StreamTensors(engine->layout(), engine->state(), *communicator,
                    [run](const float* values, std::int64_t count) {
                      run->exported.insert(run->exported.end(), values, values + count);
                      return OkStatus();
                    });
  EXPECT_TRUE(exported.ok()) << exported.ToString();
}

std::vector<RankRun> RunSharded(const RunOptions& options) {
  InProcessGroup group(options.world_size);
  std::vector<RankRun> runs(options.world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.world_size; ++rank) {
    threads.emplace_back([&, rank] { RunRank(group, rank, options, &runs[rank]); });
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

double Relative(double got, double want) { return std::abs(got - want) / std::abs(want); }

std::vector<double> Losses(const RankRun& run) {
  std::vector<double> losses;
  for (const StepNumbers& numbers : run.numbers) losses.push_back(numbers.loss);
  return losses;
}

// World size and whether the head is tied to the embedding.
class Parity : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  int world_size() const { return std::get<0>(GetParam()); }
  bool tied() const { return std::get<1>(GetParam()); }
};

TEST_P(Parity, TwentyFp32StepsMatchTheReference) {
  const ModelConfig config = TestConfig({.tied = tied()});
  ReferenceTrainer reference(config, RandomWeights(config), TestOptimizer());
  const std::vector<RankRun> runs =
      RunSharded({.world_size = world_size(), .steps = 20, .tied = tied()});
  for (int step = 0; step < 20; ++step) {
    const ReferenceNumbers want = reference.Step(AllBatches(config, step, world_size()), kLr);
    const double tolerance = step == 0 ? 1e-5 : 1e-4;
    for (const RankRun& run : runs) {
      EXPECT_LE(Relative(run.numbers[step].loss, want.loss), tolerance) << "step " << step;
      EXPECT_LE(Relative(run.numbers[step].grad_norm, want.grad_norm), tolerance)
          << "step " << step;
    }
  }
  EXPECT_LT(runs[0].numbers.back().loss, runs[0].numbers.front().loss + 1);
}

TEST_P(Parity, ExportedWeightsMatchTheReference) {
  const ModelConfig config = TestConfig({.tied = tied()});
  ReferenceTrainer reference(config, RandomWeights(config), TestOptimizer());
  const std::vector<RankRun> runs =
      RunSharded({.world_size = world_size(), .steps = 3, .tied = tied()});
  for (int step = 0; step < 3; ++step) {
    reference.Step(AllBatches(config, step, world_size()), kLr);
  }
  const float* next = runs[0].exported.data();
  const FlatLayout layout(LlamaUnits(config), world_size());
  ASSERT_EQ(static_cast<std::int64_t>(runs[0].exported.size()), layout.parameter_count());
  for (const FlatUnit& unit : layout.units()) {
    for (const FlatTensor& tensor : unit.tensors) {
      const at::Tensor got = at::from_blob(const_cast<float*>(next), tensor.spec.shape);
      const at::Tensor want = reference.weights().at(tensor.spec.name).detach();
      const double error = ((got - want).norm() / want.norm()).item<double>();
      EXPECT_LE(error, 1e-4) << tensor.spec.name;
      next += tensor.count;
    }
  }
  for (std::size_t r = 1; r < runs.size(); ++r) EXPECT_TRUE(runs[r].exported.empty());
}

INSTANTIATE_TEST_SUITE_P(Worlds, Parity,
                         testing::Combine(testing::Values(1, 2, 3, 4), testing::Bool()));

// Blocks and world size. Two slots serve any number of blocks; with many ranks most tensors are
// shorter than a shard's alignment.
class Extremes : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Extremes, ThreeStepsMatchTheReference) {
  const auto [blocks, world_size] = GetParam();
  const ModelConfig config = TestConfig({.blocks = blocks});
  ReferenceTrainer reference(config, RandomWeights(config), TestOptimizer());
  const std::vector<RankRun> runs =
      RunSharded({.world_size = world_size, .steps = 3, .blocks = blocks});
  for (int step = 0; step < 3; ++step) {
    const ReferenceNumbers want = reference.Step(AllBatches(config, step, world_size), kLr);
    EXPECT_LE(Relative(runs[0].numbers[step].loss, want.loss), 1e-5) << "step " << step;
    EXPECT_LE(Relative(runs[0].numbers[step].grad_norm, want.grad_norm), 1e-4) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Extremes,
                         testing::Values(std::tuple(1, 1), std::tuple(1, 2), std::tuple(2, 2),
                                         std::tuple(4, 3), std::tuple(5, 2), std::tuple(2, 19)));

// World size and whether it computes in bf16.
class Bits : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  RunOptions Options(int steps) const {
    return {.world_size = std::get<0>(GetParam()),
            .steps = steps,
            .precision = std::get<1>(GetParam()) ? MixedPrecision::kBf16 : MixedPrecision::kFp32};
  }
};

TEST_P(Bits, TwoRunsAreEqual) {
  const std::vector<RankRun> first = RunSharded(Options(4));
  const std::vector<RankRun> second = RunSharded(Options(4));
  for (std::size_t r = 0; r < first.size(); ++r) {
    EXPECT_EQ(first[r].arrays, second[r].arrays);
    EXPECT_EQ(Losses(first[r]), Losses(second[r]));
  }
}

TEST_P(Bits, ResumedEqualsUndisturbed) {
  const std::vector<RankRun> whole = RunSharded(Options(6));
  const std::vector<RankRun> before = RunSharded(Options(3));
  RunOptions rest = Options(3);
  rest.first_step = 3;
  rest.resume_from = &before;
  const std::vector<RankRun> after = RunSharded(rest);
  for (std::size_t r = 0; r < whole.size(); ++r) {
    EXPECT_EQ(whole[r].arrays, after[r].arrays);
    const std::vector<double> losses = Losses(whole[r]);
    EXPECT_EQ(std::vector<double>(losses.begin() + 3, losses.end()), Losses(after[r]));
  }
  EXPECT_NE(before[0].arrays, after[0].arrays);
}

TEST_P(Bits, AStepThatLostItsGangLeavesNoTrace) {
  RunOptions broken = Options(4);
  if (broken.world_size == 1) return;  // nobody to lose
  broken.broken_step = 2;
  const std::vector<RankRun> whole = RunSharded(Options(4));
  const std::vector<RankRun> again = RunSharded(broken);
  for (std::size_t r = 0; r < whole.size(); ++r) {
    EXPECT_EQ(whole[r].arrays, again[r].arrays);
    EXPECT_EQ(Losses(whole[r]), Losses(again[r]));
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Bits, testing::Combine(testing::Values(1, 2, 3), testing::Bool()));

// config.json and model.safetensors of the test model, as another program would have left them.
void WriteModel(const std::string& dir, const ModelConfig& config) {
  std::ofstream(dir + "/config.json")
      << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",)"
      << "\"hidden_size\": " << config.hidden_size
      << ", \"intermediate_size\": " << config.intermediate_size
      << ", \"num_hidden_layers\": " << config.num_hidden_layers
      << ", \"num_attention_heads\": " << config.num_attention_heads
      << ", \"num_key_value_heads\": " << config.num_key_value_heads
      << ", \"head_dim\": " << config.head_dim << ", \"vocab_size\": " << config.vocab_size
      << ", \"rms_norm_eps\": " << config.rms_norm_eps << ", \"rope_theta\": " << config.rope_theta
      << ", \"tie_word_embeddings\": " << (config.tie_word_embeddings ? "true" : "false") << "}";
  std::vector<TensorSpec> specs;
  for (const UnitTensor& tensor : LlamaTensors(config)) {
    specs.push_back({.name = tensor.name, .type = TensorType::kF32, .shape = tensor.shape});
  }
  auto writer = SafetensorsWriter::Create(dir + "/model.safetensors", specs);
  ASSERT_TRUE(writer.ok());
  const ReferenceTrainer::Weights weights = RandomWeights(config);
  for (const TensorSpec& spec : specs) {
    const at::Tensor values = weights.at(spec.name).contiguous();
    ASSERT_TRUE(writer->AppendFloats(values.const_data_ptr<float>(), values.numel()).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
}

TEST(Inference, LogitsMatchTheReference) {
  for (const bool tied : {false, true}) {
    std::string dir = testing::TempDir() + "parity-XXXXXX";
    ASSERT_NE(::mkdtemp(dir.data()), nullptr);
    const ModelConfig config = TestConfig({.tied = tied});
    WriteModel(dir, config);
    Result<InferenceModel> model = InferenceModel::Load(dir, at::kFloat);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    const at::Tensor ids = at::randint(config.vocab_size, {3, 19}, at::kLong);
    const at::Tensor got = model->Logits(ids);
    const ReferenceTrainer reference(config, RandomWeights(config), TestOptimizer());
    const at::Tensor want = reference.Logits(ids).detach();
    EXPECT_LE(((got - want).norm() / want.norm()).item<double>(), 1e-5);
    EXPECT_LE(((got - want).abs().max() / want.abs().max()).item<double>(), 1e-5);
    std::filesystem::remove_all(dir);
  }
}

TEST(Bf16, StaysCloseToFp32) {
  for (const int world_size : {1, 2}) {
    const std::vector<RankRun> exact = RunSharded({.world_size = world_size, .steps = 20});
    const std::vector<RankRun> rounded =
        RunSharded({.world_size = world_size, .steps = 20, .precision = MixedPrecision::kBf16});
    for (int step = 0; step < 20; ++step) {
      EXPECT_LE(Relative(rounded[0].numbers[step].loss, exact[0].numbers[step].loss), 0.02);
      EXPECT_LE(Relative(rounded[0].numbers[step].grad_norm, exact[0].numbers[step].grad_norm),
                0.08);
    }
    EXPECT_NE(rounded[0].numbers[0].loss, exact[0].numbers[0].loss);
  }
}

}  // namespace
}  // namespace muster::parity
