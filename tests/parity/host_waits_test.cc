// The engine on a device apart from the host: from one micro-batch to the optimizer's step the host
// waits for the device at one place, where the step's numbers are read.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/parity/apart_device.h"
#include "tests/parity/gang_run.h"
#include "trainer/comm/group/testing/in_process_communicator.h"
#include "trainer/ops/cross_entropy.h"
#include "trainer/ops/testing/forwarding_ops.h"

namespace muster::parity {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Waits {
  std::vector<std::string> micro_batches, numbers, update;
};

// What one rank waits for in a few steps; rows of later steps are longer than any before.
Waits WaitsOfSteps(DeviceOps& ops, const GangOptions& options) {
  at::set_num_threads(1);
  InProcessGroup group(1);
  const std::unique_ptr<Communicator> communicator = group.Join(0);
  EXPECT_TRUE(communicator
                  ->Form({.generation = 1, .rank = 0, .world_size = 1},
                         Deadline::After(std::chrono::seconds(30)))
                  .ok());
  const ModelConfig config = TestConfig(options.model);
  auto engine = FsdpEngine::Create(config, *communicator, ops, EngineOptions(options));
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  LoadRandomWeights(options.model, **engine);
  (*engine)->WeightsLoaded();

  Waits seen;
  WaitsOfHost waits;
  const auto note = [&waits](std::vector<std::string>& to) {
    for (std::string& each : waits.Take()) to.push_back(std::move(each));
  };
  for (int step = 0; step < 3; ++step) {
    for (MicroBatch& batch : AllBatches(config, step, 1)) {
      for (int longer = 0; longer < step; ++longer) {
        batch.input_ids.insert(batch.input_ids.end(), batch.input_ids.begin(),
                               batch.input_ids.end());
        batch.labels.insert(batch.labels.end(), batch.labels.begin(), batch.labels.end());
        batch.length *= 2;
        batch.label_count *= 2;
      }
      EXPECT_TRUE((*engine)->ForwardBackward(batch, 1e-2, false).ok());
    }
    note(seen.micro_batches);
    const Result<StepNumbers> numbers = (*engine)->FinishGradients();
    EXPECT_TRUE(numbers.ok() && numbers->finite());
    note(seen.numbers);
    (*engine)->OptimizerStep(step + 1, kLr);
    note(seen.update);
  }
  (*engine)->WaitForUpdate();
  return seen;
}

class HostWaits : public testing::TestWithParam<MixedPrecision> {
 protected:
  GangOptions Options() const { return {.fsdp = {.mixed_precision = GetParam()}}; }
  const std::unique_ptr<DeviceOps> ops_ = MakeApartOps();
};

TEST_P(HostWaits, AStepReadsItsNumbersAndNothingElse) {
  const Waits waits = WaitsOfSteps(*ops_, Options());
  EXPECT_THAT(waits.micro_batches, IsEmpty());
  const std::string read = "blocking copy to the host";
  EXPECT_THAT(waits.numbers, ElementsAre(read, read, read));
  EXPECT_THAT(waits.update, IsEmpty());
}

TEST_P(HostWaits, WithStateInHostMemoryAsWell) {
  GangOptions options = Options();
  options.fsdp.cpu_offload = true;
  options.fsdp.activation_checkpointing = ActivationCheckpointing::kFullOffload;
  const Waits waits = WaitsOfSteps(*ops_, options);
  EXPECT_THAT(waits.micro_batches, IsEmpty());
  EXPECT_THAT(waits.update, IsEmpty());
}

// An operator that looks at what it has computed, and one that takes an array from the host.
TEST_P(HostWaits, AreSeen) {
  class Looks final : public ForwardingOps {
   public:
    using ForwardingOps::ForwardingOps;
    void RunKernel(const AnyOperator& op) override {
      ForwardingOps::RunKernel(op);
      if (op.As<op::CrossEntropy>() == nullptr) return;
      const at::Tensor ones = at::ones({2}).to(device());
      (void)ones.sum().item<float>();
    }
  } looks(*ops_);
  const std::vector<std::string> seen = WaitsOfSteps(looks, Options()).micro_batches;
  ASSERT_GE(seen.size(), 2u);
  EXPECT_EQ(seen[0], "blocking copy to the device");
  EXPECT_EQ(seen[1], "aten::_local_scalar_dense");
}

INSTANTIATE_TEST_SUITE_P(Precisions, HostWaits,
                         testing::Values(MixedPrecision::kBf16, MixedPrecision::kFp32),
                         [](const auto& info) {
                           return std::string(info.param == MixedPrecision::kBf16 ? "bf16"
                                                                                  : "fp32");
                         });

}  // namespace
}  // namespace muster::parity
