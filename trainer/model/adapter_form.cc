#include "trainer/model/adapter_form.h"

#include <algorithm>
#include <set>

#include "trainer/model/form_json.h"

namespace muster {
namespace {

using nlohmann::json;

constexpr char kNf4[] = "nf4";

json ObjectOf(const AdapterForm& form) {
  json object = json::object();
  VisitAdapterForm(form, [&object](const AdapterKey& key, const auto& value) {
    object[key.name] = FormToJson(value);
  });
  return object;
}

// In whatever order modules are named.
AdapterForm Ordered(AdapterForm form) {
  std::sort(form.lora.modules_to_save.begin(), form.lora.modules_to_save.end());
  std::sort(form.lora.target_modules.begin(), form.lora.target_modules.end());
  return form;
}

// How all-linear is saved, as version 0.2 had it. A list of these is saved in another order.
const std::vector<std::string> kSavedAllLinear = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                  "gate_proj", "up_proj", "down_proj"};

AdapterForm AsSaved(AdapterForm form) {
  std::vector<std::string>& targets = form.lora.target_modules;
  if (targets == kSavedAllLinear) std::sort(targets.begin(), targets.end());
  if (targets == kAllLinear) targets = kSavedAllLinear;
  return form;
}

std::string Words(const json& value) { return value.is_null() ? "none" : value.dump(); }

[[noreturn]] void Refuse(const char* what) { throw json::other_error::create(501, what, nullptr); }

}  // namespace

json FormToJson(LoraBias value) { return LoraBiasWord(value); }
json FormToJson(const std::vector<std::string>& value) { return value; }

json FormToJson(const std::optional<QuantizationSpec>& value) {
  if (!value) return nullptr;
  return {{"kind", kNf4}, {"double_quant", value->double_quant}};
}

json FormToJson(const std::optional<std::vector<TokenSpec>>& value) {
  if (!value) return nullptr;
  json tokens = json::array();
  for (const TokenSpec& token : *value) {
    tokens.push_back({{"content", token.content}, {"special", token.special}});
  }
  return tokens;
}

void FormFromJson(const json& from, LoraBias* value) {
  for (const LoraBias bias : {LoraBias::kNone, LoraBias::kAll, LoraBias::kLoraOnly}) {
    if (from == LoraBiasWord(bias)) {
      *value = bias;
      return;
    }
  }
  Refuse("lora.bias is none of none, all and lora_only");
}

void FormFromJson(const json& from, std::vector<std::string>* value) { from.get_to(*value); }

void FormFromJson(const json& from, std::optional<QuantizationSpec>* value) {
  value->reset();
  if (from.is_null()) return;
  if (from.at("kind") != kNf4) Refuse("quantization.kind is not nf4");
  *value = QuantizationSpec{.double_quant = from.at("double_quant").get<bool>()};
}

void FormFromJson(const json& from, std::optional<std::vector<TokenSpec>>* value) {
  value->reset();
  if (from.is_null()) return;
  value->emplace();
  for (const auto& token : from) {
    (*value)->push_back({.content = token.at("content").get<std::string>(),
                         .special = token.at("special").get<bool>()});
  }
}

const char* LoraBiasWord(LoraBias bias) {
  switch (bias) {
    case LoraBias::kNone: return "none";
    case LoraBias::kAll: return "all";
    case LoraBias::kLoraOnly: return "lora_only";
  }
  return "none";
}

AdapterForm AdapterFormOf(const TrainSpec& train) {
  return {.lora = train.lora.value_or(LoraSpec()),
          .quantization = train.quantization,
          .add_tokens = train.model.add_tokens,
          .pad_vocab_to = train.model.pad_vocab_to};
}

std::string AdapterFormText(const AdapterForm& form) {
  return ObjectOf(AsSaved(form)).dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<AdapterForm> ParseAdapterForm(const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return DataLoss("the form of the adapter is no JSON object");
  AdapterForm form;
  std::set<std::string> unknown;
  for (const auto& [key, value] : object.items()) unknown.insert(key);
  try {
    VisitAdapterForm(form, [&](const AdapterKey& key, auto& value) {
      unknown.erase(key.name);
      FormFromJson(object.at(key.name), &value);
    });
  } catch (const json::exception& error) {
    return DataLoss(std::string("the form of the adapter is not understood: ") + error.what());
  }
  if (form.lora.target_modules == kSavedAllLinear) form.lora.target_modules = kAllLinear;
  if (unknown.empty()) return form;
  return Unimplemented("the adapter was trained with " + *unknown.begin() +
                       ", which this version does not know");
}

Status CheckSameForm(const std::string& saved, const AdapterForm& form) {
  MUSTER_ASSIGN_OR_RETURN(const AdapterForm theirs, ParseAdapterForm(saved));
  const json there = ObjectOf(Ordered(theirs));
  const json here = ObjectOf(Ordered(form));
  Status status;
  VisitAdapterForm(form, [&](const AdapterKey& key, const auto&) {
    if (!status.ok() || key.may_change || there[key.name] == here[key.name]) return;
    status =
        FailedPrecondition("the adapter was trained with train." + std::string(key.name) + " " +
                           Words(there[key.name]) + ", the job has " + Words(here[key.name]));
  });
  return status;
}

}  // namespace muster
