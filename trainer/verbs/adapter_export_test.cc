#include "trainer/verbs/adapter_export.h"

#include <gmock/gmock.h>

#include <map>

#include "trainer/state/checkpoint/file_state.h"
#include "trainer/train/testing/trainer_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class AdapterExportTest : public TrainerTest {
 protected:
  JobSpec LoraJob() const {
    JobSpec spec = Spec("out");
    spec.train->fsdp.blocks_per_unit = 2;
    spec.train->lora = LoraSpec{
        .r = 2, .alpha = 5, .dropout = 0.1, .target_modules = {"q_proj", "v_proj", "down_proj"}};
    return spec;
  }
  void Train(const JobSpec& spec) const {
    for (const RankResult& result : RunAlone(spec)) {
      ASSERT_TRUE(result.status.ok()) << result.status.message();
    }
  }
  std::unique_ptr<StateReader> Open(const std::string& name) const {
    auto state = OpenState(dir_ + "/" + name);
    EXPECT_TRUE(state.ok()) << state.status().ToString();
    return *std::move(state);
  }
  Status Export(StateReader& state, const std::string& model = "") const {
    return ExportAdapter(state, {.model = model, .out = dir_ + "/exported"});
  }
  // By name.
  std::map<std::string, std::string> Files(const std::string& directory) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/" + directory)) {
      files[entry.path().filename().string()] = *ReadFile(entry.path().string());
    }
    return files;
  }
  void ExpectAsTheJobWroteIt() const {
    const auto written = Files("out/adapter");
    const auto exported = Files("exported");
    EXPECT_TRUE(written.contains("adapter_model.safetensors"));
    EXPECT_EQ(written.size(), exported.size());
    for (const auto& [name, text] : written) {
      ASSERT_TRUE(exported.contains(name)) << name;
      EXPECT_TRUE(exported.at(name) == text) << name << " differs";
    }
  }
};

TEST_F(AdapterExportTest, WritesWhatTheJobWroteAtItsEnd) {
  Train(LoraJob());
  const auto state = Open("out/checkpoints");
  EXPECT_EQ(state->cursor().step, 6);
  const Status exported = Export(*state);
  ASSERT_TRUE(exported.ok()) << exported.ToString();
  ExpectAsTheJobWroteIt();
}

TEST_F(AdapterExportTest, WritesModulesThatAreTrainedWholeAndTheTokenizerWithNewTokens) {
  JobSpec spec = LoraJob();
  spec.train->lora->modules_to_save = {"lm_head", "embed_tokens"};
  spec.train->model.add_tokens = std::vector<TokenSpec>{{.content = "<|x|>"}};
  spec.train->model.pad_vocab_to = 64;
  Train(spec);
  const Status exported = Export(*Open("out/checkpoints"), dir_ + "/model");
  ASSERT_TRUE(exported.ok()) << exported.ToString();
  ExpectAsTheJobWroteIt();
}

TEST_F(AdapterExportTest, AStateInOneFileSaysAsMuch) {
  Train(LoraJob());
  ASSERT_TRUE(WriteStateFile(*Open("out/checkpoints"), dir_ + "/state.safetensors").ok());
  const Status exported = Export(*Open("state.safetensors"));
  ASSERT_TRUE(exported.ok()) << exported.ToString();
  ExpectAsTheJobWroteIt();
}

TEST_F(AdapterExportTest, AModelThatIsNotThereOrHasOtherWeightsIsNamed) {
  Train(LoraJob());
  const auto state = Open("out/checkpoints");
  EXPECT_THAT(Export(*state, dir_ + "/nowhere").message(), HasSubstr("--model"));
  EditWeights("model.norm.weight", [](std::vector<float>& values) { values[0] += 1; });
  const Status status = Export(*state);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("has other weights"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/exported"));
}

TEST_F(AdapterExportTest, AWholeModelHoldsNone) {
  Train(Spec("out"));
  EXPECT_FALSE(HoldsAdapter(*Open("out/checkpoints")));
  JobSpec adapters = LoraJob();
  adapters.train->output_dir = "lora";
  Train(adapters);
  EXPECT_TRUE(HoldsAdapter(*Open("lora/checkpoints")));
}

}  // namespace
}  // namespace muster
