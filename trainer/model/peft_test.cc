#include "trainer/model/peft.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "trainer/model/adapters.h"

namespace muster {
namespace {

class Peft : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("muster-peft-" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& text) { std::ofstream(dir_ / kAdapterConfig) << text; }
  std::string Refusal(const std::string& extra) {
    Write(R"({"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"])" + extra + "}");
    return ReadAdapterConfig(dir_.string()).status().message();
  }

  std::filesystem::path dir_;
};

LoraSpec Spec() {
  LoraSpec spec;
  spec.r = 4;
  spec.alpha = 6;
  spec.bias = LoraBias::kAll;
  spec.target_modules = {"q_proj", "down_proj"};
  spec.modules_to_save = {"embed_tokens"};
  return spec;
}

TEST_F(Peft, ReadsWhatItWrites) {
  Write(AdapterConfigText(Spec(), "models/base"));
  EXPECT_TRUE(CheckAdapterConfig(dir_.string(), Spec()).ok());
  const auto read = ReadAdapterConfig(dir_.string());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->r, 4);
  EXPECT_EQ(read->alpha, 6);
  EXPECT_EQ(read->target_modules, Spec().target_modules);
}

TEST_F(Peft, TakesModulesInAnyOrderAndDefaults) {
  Write(R"({"target_modules": ["up_proj", "q_proj"]})");
  const auto read = ReadAdapterConfig(dir_.string());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->r, 8);
  EXPECT_EQ(LoraScale(*read), 1);
  EXPECT_EQ(read->target_modules, (std::vector<std::string>{"q_proj", "up_proj"}));
  Write(R"({"target_modules": "all-linear", "r": 2})");
  EXPECT_EQ(ReadAdapterConfig(dir_.string())->target_modules, kLinearModules);
}

TEST_F(Peft, RefusesOtherKindsByName) {
  EXPECT_NE(Refusal(R"(, "use_dora": true)").find("use_dora"), std::string::npos);
  EXPECT_NE(Refusal(R"(, "rank_pattern": {"q_proj": 4})").find("rank_pattern"), std::string::npos);
  EXPECT_NE(Refusal(R"(, "peft_type": "IA3")").find("IA3"), std::string::npos);
  EXPECT_NE(Refusal(R"(, "target_modules": ["q_proj", "lm_head"])").find("lm_head"),
            std::string::npos);
  EXPECT_NE(Refusal(R"(, "r": "eight")").find("adapter_config.json"), std::string::npos);
  EXPECT_NE(Refusal(R"(, "r": 0)").find("r is 0"), std::string::npos);
  EXPECT_EQ(Refusal(R"(, "use_dora": false, "rank_pattern": {}, "layers_pattern": null)"), "");
}

TEST_F(Peft, NamesTheFirstDifferenceToTheJob) {
  Write(AdapterConfigText(Spec(), "base"));
  const auto difference = [&](auto change) {
    LoraSpec other = Spec();
    change(&other);
    return CheckAdapterConfig(dir_.string(), other).message();
  };
  EXPECT_NE(difference([](LoraSpec* s) { s->r = 8; }).find("r is 4, the job's lora has 8"),
            std::string::npos);
  EXPECT_NE(difference([](LoraSpec* s) { s->rslora = true; }).find("scale"), std::string::npos);
  EXPECT_NE(difference([](LoraSpec* s) { s->target_modules.pop_back(); }).find("target_modules"),
            std::string::npos);
  EXPECT_NE(difference([](LoraSpec* s) { s->bias = LoraBias::kNone; }).find("bias is all"),
            std::string::npos);
}

}  // namespace
}  // namespace muster
