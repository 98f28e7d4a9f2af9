// AdapterForm: the settings that make trained tensors the function that was trained.
//
// VisitAdapterForm is the one list of them. By it the ranks agree at a start (SettingsFingerprint),
// every saved adapter says what it is (AdapterOrigin), a resume compares it with the job, and
// PEFT's adapter_config.json is written. Names are those of the job file's train block.
//
// Plain values and pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"

namespace muster {

struct AdapterForm {
  LoraSpec lora;                                      // but for init_from, where it began
  std::optional<QuantizationSpec> quantization = {};  // of the frozen matrices
  // The vocabulary, as in ModelSpec: which rows of embedding and head stand for what.
  std::optional<std::vector<TokenSpec>> add_tokens = {};
  int pad_vocab_to = 0;
};

AdapterForm AdapterFormOf(const TrainSpec& train);

struct AdapterKey {
  const char* name;            // "lora.alpha"
  const char* peft = nullptr;  // in adapter_config.json: "lora_alpha"; null: it is not there
  bool may_change = false;     // a resume may come with another one
};

// Calls visit(key, value) for every setting. `form` is an AdapterForm, const or not.
template <typename Form, typename Visit>
void VisitAdapterForm(Form&& form, const Visit& visit) {
  visit(AdapterKey{"lora.r", "r"}, form.lora.r);
  visit(AdapterKey{"lora.alpha", "lora_alpha"}, form.lora.alpha);
  visit(AdapterKey{"lora.rslora", "use_rslora"}, form.lora.rslora);
  visit(AdapterKey{"lora.dropout", "lora_dropout", true}, form.lora.dropout);
  visit(AdapterKey{"lora.bias", "bias"}, form.lora.bias);
  visit(AdapterKey{"lora.target_modules", "target_modules"}, form.lora.target_modules);
  visit(AdapterKey{"lora.modules_to_save", "modules_to_save"}, form.lora.modules_to_save);
  visit(AdapterKey{"quantization"}, form.quantization);
  visit(AdapterKey{"model.add_tokens"}, form.add_tokens);
  visit(AdapterKey{"model.pad_vocab_to"}, form.pad_vocab_to);
}

// "none", "all", "lora_only".
const char* LoraBiasWord(LoraBias bias);

// A JSON object with a member for each key, {"lora.alpha": 8.0, ...}: equal texts, equal forms.
std::string AdapterFormText(const AdapterForm& form);
// The same back. kDataLoss for what is no form, kUnimplemented for keys that are not known here.
Result<AdapterForm> ParseAdapterForm(const std::string& text);

// Whether what was trained in the form `saved` (a text as above) can be trained on in `form`:
// kFailedPrecondition with the first key that differs and both values.
Status CheckSameForm(const std::string& saved, const AdapterForm& form);

}  // namespace muster
