#include "trainer/model/adapter_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace muster {
namespace {

using ::testing::HasSubstr;

AdapterForm Form() {
  AdapterForm form;
  form.lora = {.r = 4,
               .alpha = 6.5,
               .dropout = 0.1,
               .rslora = true,
               .bias = LoraBias::kLoraOnly,
               .target_modules = {"q_proj", "down_proj"},
               .modules_to_save = {"embed_tokens", "lm_head"}};
  form.quantization = QuantizationSpec{.double_quant = false};
  form.add_tokens = std::vector<TokenSpec>{{.content = "<\"x\">", .special = false}};
  form.pad_vocab_to = 64;
  return form;
}

struct Change {
  std::string key;
  std::function<void(AdapterForm&)> make;
};
const Change kChanges[] = {
    {"lora.r 4, the job has 8", [](AdapterForm& f) { f.lora.r = 8; }},
    {"lora.alpha 6.5, the job has 8.0", [](AdapterForm& f) { f.lora.alpha = 8; }},
    {"lora.rslora", [](AdapterForm& f) { f.lora.rslora = false; }},
    {"lora.bias \"lora_only\", the job has \"none\"",
     [](AdapterForm& f) { f.lora.bias = LoraBias::kNone; }},
    {"lora.target_modules", [](AdapterForm& f) { f.lora.target_modules = {"q_proj"}; }},
    {"lora.modules_to_save", [](AdapterForm& f) { f.lora.modules_to_save.clear(); }},
    {"quantization", [](AdapterForm& f) { f.quantization->double_quant = true; }},
    {"the job has none", [](AdapterForm& f) { f.quantization.reset(); }},
    {"model.add_tokens", [](AdapterForm& f) { f.add_tokens->front().content = "<y>"; }},
    {"model.pad_vocab_to", [](AdapterForm& f) { f.pad_vocab_to = 128; }},
};

TEST(AdapterForm, IsReadAsItWasWritten) {
  for (const AdapterForm& form : {Form(), AdapterForm()}) {
    const std::string text = AdapterFormText(form);
    const auto read = ParseAdapterForm(text);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(AdapterFormText(*read), text);
  }
}

TEST(AdapterForm, EverySettingMakesAnotherTextAndIsNamedWhereItDiffers) {
  for (const Change& change : kChanges) {
    AdapterForm other = Form();
    change.make(other);
    EXPECT_NE(AdapterFormText(other), AdapterFormText(Form())) << change.key;
    const Status status = CheckSameForm(AdapterFormText(Form()), other);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr(change.key));
  }
}

TEST(AdapterForm, DropoutAndTheOrderOfModulesMayChange) {
  AdapterForm other = Form();
  other.lora.dropout = 0;
  other.lora.modules_to_save = {"lm_head", "embed_tokens"};
  const Status status = CheckSameForm(AdapterFormText(Form()), other);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// On disk it is the list that version 0.2 wrote.
TEST(AdapterForm, AllLinearIsNotAListOfTheSameModules) {
  AdapterForm all, listed;
  listed.lora.target_modules = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                "gate_proj", "up_proj", "down_proj"};
  const std::string text = AdapterFormText(all);
  EXPECT_THAT(text, HasSubstr(R"(["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj",)"));
  EXPECT_EQ(ParseAdapterForm(text)->lora.target_modules, kAllLinear);
  EXPECT_TRUE(CheckSameForm(text, all).ok());
  EXPECT_TRUE(CheckSameForm(AdapterFormText(listed), listed).ok());
  EXPECT_THAT(CheckSameForm(text, listed).message(), HasSubstr("[\"all-linear\"], the job has"));
}

TEST(AdapterForm, WhatIsNoFormOrOneOfALaterVersionIsRefused) {
  EXPECT_EQ(ParseAdapterForm("[]").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ParseAdapterForm("{}").status().code(), StatusCode::kDataLoss);
  std::string text = AdapterFormText(Form());
  text.insert(1, "\"lora.dora\": true,");
  EXPECT_EQ(ParseAdapterForm(text).status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(CheckSameForm(text, Form()).message(), HasSubstr("lora.dora"));
}

}  // namespace
}  // namespace muster
