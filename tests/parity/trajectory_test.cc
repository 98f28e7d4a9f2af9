// The sharded engine against what transformers has computed: testdata/trajectories.json, made by
// tests/golden/make_trajectory_golden.py.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "common/base/json.h"
#include "tests/parity/gang_run.h"
#include "trainer/comm/group/testing/in_process_communicator.h"
#include "trainer/model/families/read_config.h"
#include "trainer/model/families/units.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace muster::parity {
namespace {

using Json = nlohmann::json;

// All of these as in the script.
constexpr int kSteps = 20, kMicros = 6;
constexpr std::int64_t kRow = 24;
constexpr double kRate = 3e-4;
const std::vector<std::vector<std::int64_t>> kDocuments = {
    {24}, {5, 19}, {9, 8, 7}, {17, 7}, {2, 22}};

std::uint32_t Mixed(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

at::Tensor WeightOf(const UnitTensor& tensor) {
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < tensor.name.size(); ++i)
    begin += static_cast<unsigned char>(tensor.name[i]) * (i + 1) * 65536;
  at::Tensor values = at::empty({ElementCount(tensor.shape)}, at::kDouble);
  auto* data = values.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const std::uint32_t bits = Mixed(static_cast<std::uint32_t>(begin + i)) >> 16;
    data[i] = (bits / 65536.0 - 0.5) * 0.5 + (tensor.shape.size() == 1 ? 1 : 0);
  }
  return values.view(tensor.shape);
}

// How documents reach the engine.
enum class Layout { kPacked, kPadded };

void AppendDocument(std::uint32_t begin, std::int64_t length, std::int64_t vocabulary,
                    MicroBatch* batch) {
  for (std::int64_t i = 0; i < length; ++i) {
    batch->input_ids.push_back(Mixed(begin + static_cast<std::uint32_t>(i)) % vocabulary);
    if (i > 0) batch->labels.push_back(batch->input_ids.back());
  }
  batch->labels.push_back(kIgnoredLabel);
  batch->label_count += length - 1;
}

MicroBatch BatchOf(int step, int micro, std::int64_t vocabulary, Layout layout) {
  MicroBatch batch{.rows = layout == Layout::kPacked ? 2 : 0, .length = kRow};
  for (int row = 0; row < 2; ++row) {
    std::int64_t at = 0;
    for (const std::int64_t length :
         kDocuments[static_cast<std::size_t>(step + 2 * micro + row) % kDocuments.size()]) {
      if (layout == Layout::kPacked) batch.document_begins.push_back(row * kRow + at);
      const std::int64_t begin = ((step * kMicros + micro) * 2 + row) * kRow + at;
      AppendDocument(static_cast<std::uint32_t>(begin), length, vocabulary, &batch);
      at += length;
      if (layout == Layout::kPacked) continue;
      ++batch.rows;
      batch.row_lengths.push_back(length);
      batch.input_ids.resize(static_cast<std::size_t>(batch.rows * kRow), 0);
      batch.labels.resize(static_cast<std::size_t>(batch.rows * kRow), kIgnoredLabel);
    }
  }
  return batch;
}

struct Trial {
  int world_size = 1;
  Layout layout = Layout::kPacked;
  MixedPrecision precision = MixedPrecision::kFp64;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
};

FsdpOptions OptionsOfTrial(const Trial& run) {
  TrainSpec train;
  train.fsdp = {.mixed_precision = run.precision, .activation_checkpointing = run.checkpointing};
  train.optimizer = {.lr = kRate, .weight_decay = 0.1, .grad_clip = 0};
  return OptionsOf(train, 1);
}

// All steps of one rank.
void RunRank(const ModelConfig& config, const Trial& run, InProcessGroup& group, int rank,
             std::vector<StepNumbers>* numbers) {
  at::set_num_threads(1);
  const auto communicator = group.Join(rank);
  const Status formed =
      communicator->Form({.generation = 1, .rank = rank, .world_size = run.world_size},
                         Deadline::After(std::chrono::seconds(30)));
  ASSERT_TRUE(formed.ok()) << formed.ToString();
  const auto ops = MakeCpuOps();
  auto engine = FsdpEngine::Create(config, *communicator, *ops, OptionsOfTrial(run));
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  ReferenceTrainer::Weights weights;
  for (const UnitTensor& tensor : ModelTensors(config)) weights[tensor.name] = WeightOf(tensor);
  LoadWeights(weights, **engine);
  (*engine)->WeightsLoaded();
  for (int step = 0; step < kSteps; ++step) {
    double labels = 0;
    for (int micro = 0; micro < kMicros; ++micro)
      labels +=
          static_cast<double>(BatchOf(step, micro, config.vocab_size, run.layout).label_count);
    for (int micro = rank; micro < kMicros; micro += run.world_size) {
      const Status status =
          (*engine)->ForwardBackward(BatchOf(step, micro, config.vocab_size, run.layout),
                                     1 / labels, micro + run.world_size >= kMicros);
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    const auto made = (*engine)->FinishGradients();
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    numbers->push_back(*made);
    (*engine)->OptimizerStep(step + 1, kRate);
  }
  (*engine)->WaitForUpdate();
}

std::vector<StepNumbers> Train(const ModelConfig& config, const Trial& run) {
  InProcessGroup group(run.world_size, InProcessTransport::kSharedMemory);
  std::vector<std::vector<StepNumbers>> numbers(static_cast<std::size_t>(run.world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < run.world_size; ++rank)
    threads.emplace_back([&, rank] { RunRank(config, run, group, rank, &numbers[rank]); });
  for (std::thread& thread : threads) thread.join();
  return numbers[0];
}

class Trajectories : public testing::TestWithParam<int> {
 protected:
  // Every case's model, and how far a run of it strays at most: in fp32 also twice as far as that
  // of transformers, since some cases' norms round more than others.
  static void ForEach(const Trial& run, double limit) {
    std::ifstream file(MUSTER_TESTDATA "/trajectories.json");
    for (const Json& golden : Json::parse(file)) {
      const std::string name = golden["name"];
      const auto config = ParseModelConfig(golden["config"].dump(), name);
      ASSERT_TRUE(config.ok()) << config.status().ToString();
      const std::vector<StepNumbers> numbers = Train(*config, run);
      ASSERT_EQ(numbers.size(), static_cast<std::size_t>(kSteps)) << name;
      double of_loss = 0, of_norm = 0;
      for (std::size_t step = 0; step < numbers.size(); ++step) {
        of_loss = std::max(of_loss, Relative(numbers[step].loss, golden["losses"][step]));
        of_norm = std::max(of_norm, Relative(numbers[step].grad_norm, golden["grad_norms"][step]));
      }
      double limit_of_norm = limit;
      if (run.precision == MixedPrecision::kFp32)
        limit_of_norm = std::max(limit, 2 * golden["strays_in_fp32"]["grad_norms"].get<double>());
      EXPECT_LE(of_loss, limit) << name;
      EXPECT_LE(of_norm, limit_of_norm) << name;
      RecordProperty(name, std::to_string(of_loss / limit) + " " + std::to_string(of_norm / limit));
    }
  }
};

TEST_P(Trajectories, Fp64IsThatOfTransformers) {
  // Packed or padded, and computed again or not, are nothing to the number of ranks.
  const bool padded = GetParam() == 2;
  ForEach(
      {.world_size = GetParam(),
       .layout = padded ? Layout::kPadded : Layout::kPacked,
       .checkpointing = padded ? ActivationCheckpointing::kFull : ActivationCheckpointing::kNone},
      1e-12);
}

TEST_P(Trajectories, Fp32IsWithinItsRounding) {
  ForEach({.world_size = GetParam(),
           .precision = MixedPrecision::kFp32,
           .checkpointing = ActivationCheckpointing::kSelective},
          1e-6);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Trajectories, testing::Values(1, 2, 3));

}  // namespace
}  // namespace muster::parity
