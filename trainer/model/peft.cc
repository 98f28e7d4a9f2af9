#include "trainer/model/peft.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/job_spec/lora_targets.h"
#include "trainer/model/adapter_form.h"
#include "trainer/model/adapters.h"
#include "trainer/model/form_json.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMaxConfigBytes = 16 << 20;

// PEFT's key for parameters, which is part of lora.target_modules here.
constexpr char kTargetParameters[] = "target_parameters";

// Whether a key says anything: null, false and what is empty do not.
bool IsSet(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  return !value.empty();  // a number or a text never is
}

// Whether a key is acted on.
bool IsRead(std::string_view key) {
  bool found = key == "peft_type" || key == kTargetParameters;
  VisitAdapterForm(AdapterForm(), [&](const AdapterKey& each, const auto&) {
    found = found || (each.peft != nullptr && key == each.peft);
  });
  return found;
}

// Keys that change no number of a LORA adapter that is loaded, whatever they say.
constexpr std::string_view kMeaningless[] = {
    "auto_mapping",  // which class of transformers the base was
    "base_model_name_or_path",
    "revision",
    "task_type",
    "inference_mode",
    "peft_version",
    "init_lora_weights",  // looked at by CheckInit
    "loftq_config",       // these of ways to begin that are refused
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "megatron_core",      // the name of a module that megatron_config would use
    "qalora_group_size",  // of use_qalora
    "runtime_config"};

// PEFT takes B A of these away from the base when it loads them, or the base was another one.
Status CheckInit(const Json& config, const std::string& path) {
  const auto found = config.find("init_lora_weights");
  if (found == config.end() || found->is_null() || found->is_boolean() || *found == "gaussian" ||
      *found == "orthogonal")
    return OkStatus();
  return Unimplemented(path + ": init_lora_weights " + found->dump() +
                       " may have changed the model itself, which is not supported; true, false, "
                       "gaussian and orthogonal are");
}

bool Lists(std::span<const std::string_view> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// What would change the numbers and is not acted on. PEFT's LoraConfig gets further keys with every
// version; those that are unknown here are refused where they say anything.
Status RefuseOtherKinds(const Json& config, const std::string& path) {
  if (config.value("peft_type", "LORA") != "LORA") {
    return Unimplemented(path + ": peft_type " + config["peft_type"].dump() +
                         " is not supported; LORA is");
  }
  for (const auto& [key, value] : config.items()) {
    if (IsRead(key) || Lists(kMeaningless, key) || !IsSet(value)) continue;
    return Unimplemented(path + ": " + key + " is not supported");
  }
  return CheckInit(config, path);
}

std::vector<std::string> TextsOf(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return {};
  return found->get<std::vector<std::string>>();
}

// PEFT takes the end of a parameter's name, too.
Result<std::vector<std::string>> ParametersOf(const Json& config, const std::string& path) {
  std::vector<std::string> ordered;
  const auto named = TextsOf(config, kTargetParameters);
  for (const std::string& known : kExpertParameters) {
    const bool found = std::any_of(named.begin(), named.end(), [&](const std::string& name) {
      return known == name || known.ends_with("." + name);
    });
    if (found) ordered.push_back(known);
  }
  if (ordered.size() == named.size()) return ordered;
  return Unimplemented(path + ": " + kTargetParameters + " " + Json(named).dump() +
                       " names others than those of " + Json(kExpertParameters).dump());
}

// PEFT keeps modules in any order, and perhaps as "all-linear".
Result<std::vector<std::string>> TargetsOf(const Json& config, const std::string& path) {
  const bool none =
      config.contains(kTargetParameters) && config.value("target_modules", Json()).is_null();
  if (none) return std::vector<std::string>();
  const Json& targets = config.at("target_modules");
  if (targets == kAllLinear.front()) return kAllLinear;
  if (targets.is_string()) {
    return Unimplemented(path + ": target_modules is the regular expression " + targets.dump() +
                         "; list the names of the modules instead");
  }
  const auto named = targets.get<std::vector<std::string>>();
  std::vector<std::string> ordered;
  for (const std::string& module : kAdapterModules) {
    if (std::find(named.begin(), named.end(), module) != named.end()) ordered.push_back(module);
  }
  if (ordered.size() == named.size()) return ordered;
  return Unimplemented(path + ": target_modules " + targets.dump() +
                       " names others than those of " + Json(kAdapterModules).dump());
}

Result<LoraBias> BiasOf(const Json& config, const std::string& path) {
  const std::string word = config.value("bias", "none");
  for (const LoraBias bias : {LoraBias::kNone, LoraBias::kAll, LoraBias::kLoraOnly}) {
    if (word == LoraBiasWord(bias)) return bias;
  }
  return Unimplemented(path + ": bias is " + word + "; none, all and lora_only are supported");
}

Result<LoraSpec> SpecOf(const Json& config, const std::string& path) {
  MUSTER_RETURN_IF_ERROR(RefuseOtherKinds(config, path));
  LoraSpec spec;
  for (const char* key : {"r", "lora_alpha", "lora_dropout"}) {
    if (config.contains(key) && !config[key].is_number())
      return InvalidArgument(path + ": " + key + " is " + config[key].dump() + ", no number");
  }
  spec.r = config.value("r", 8);
  spec.alpha = config.value("lora_alpha", 8.0);
  spec.dropout = config.value("lora_dropout", 0.0);
  spec.rslora = config.value("use_rslora", false);
  MUSTER_ASSIGN_OR_RETURN(spec.bias, BiasOf(config, path));
  MUSTER_ASSIGN_OR_RETURN(spec.target_modules, TargetsOf(config, path));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> parameters, ParametersOf(config, path));
  spec.target_modules.insert(spec.target_modules.end(), parameters.begin(), parameters.end());
  spec.modules_to_save = TextsOf(config, "modules_to_save");
  if (spec.r < 1) return InvalidArgument(path + ": r is " + std::to_string(spec.r));
  return spec;
}

Status Differs(const std::string& dir, const char* key, const std::string& theirs,
               const std::string& ours) {
  return InvalidArgument(dir + "/" + kAdapterConfig + ": " + key + " is " + theirs +
                         ", the job's lora has " + ours);
}

std::string Sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return Json(names).dump();
}

}  // namespace

std::string AdapterConfigText(const LoraSpec& spec, const std::string& base_model) {
  // Ordered by key, as PEFT writes it.
  nlohmann::json config = {
      {"base_model_name_or_path", base_model},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"use_dora", false},
  };
  VisitAdapterForm(AdapterForm{.lora = spec}, [&config](const AdapterKey& key, const auto& value) {
    if (key.peft != nullptr) config[key.peft] = FormToJson(value);
  });
  std::vector<std::string> modules, parameters;
  for (const std::string& target : spec.target_modules) {
    const bool is_parameter = std::find(kExpertParameters.begin(), kExpertParameters.end(),
                                        target) != kExpertParameters.end();
    (is_parameter ? parameters : modules).push_back(target);
  }
  config["target_modules"] = modules;
  if (!parameters.empty()) config[kTargetParameters] = parameters;
  // PEFT declares it an integer, and most are.
  if (spec.alpha == std::floor(spec.alpha)) {
    config["lora_alpha"] = static_cast<std::int64_t>(spec.alpha);
  }
  if (spec.modules_to_save.empty()) config["modules_to_save"] = nullptr;
  return config.dump(2) + "\n";
}

ModelDirectory::Adapter PeftDirectory(const std::vector<UnitTensor>& trained, const LoraSpec& spec,
                                      const std::string& base_model) {
  LoraSpec written = spec;
  written.target_modules = AdaptedTargets(trained, spec);
  ModelDirectory::Adapter adapter{.weights_name = kAdapterWeights,
                                  .tensors = {},
                                  .config_name = kAdapterConfig,
                                  .config_text = AdapterConfigText(written, base_model)};
  for (const UnitTensor& tensor : trained) {
    adapter.tensors.push_back(
        {.name = PeftName(tensor, spec), .type = TensorType::kF32, .shape = tensor.shape});
  }
  return adapter;
}

Result<LoraSpec> ReadAdapterConfig(const std::string& dir) {
  const std::string path = dir + "/" + kAdapterConfig;
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  try {
    const Json config = Json::parse(text);
    if (!config.is_object()) return InvalidArgument(path + ": is no JSON object");
    return SpecOf(config, path);
  } catch (const Json::exception& error) {
    return InvalidArgument(path + ": " + error.what());
  }
}

Status CheckAdapterConfig(const std::string& dir, const LoraSpec& job,
                          const std::vector<UnitTensor>& trained) {
  LoraSpec spec = job;
  MUSTER_ASSIGN_OR_RETURN(LoraSpec theirs, ReadAdapterConfig(dir));
  for (LoraSpec* each : {&spec, &theirs}) each->target_modules = AdaptedTargets(trained, *each);
  if (theirs.r != spec.r) {
    return Differs(dir, "r", std::to_string(theirs.r), std::to_string(spec.r));
  }
  if (LoraScale(theirs) != LoraScale(spec)) {
    return Differs(dir, "the scale of lora_alpha and use_rslora", std::to_string(LoraScale(theirs)),
                   std::to_string(LoraScale(spec)));
  }
  for (const auto& [key, list] : {std::pair("target_modules", &LoraSpec::target_modules),
                                  std::pair("modules_to_save", &LoraSpec::modules_to_save)}) {
    if (Sorted(theirs.*list) != Sorted(spec.*list)) {
      return Differs(dir, key, Sorted(theirs.*list), Sorted(spec.*list));
    }
  }
  if (theirs.bias != spec.bias)
    return Differs(dir, "bias", LoraBiasWord(theirs.bias), LoraBiasWord(spec.bias));
  return OkStatus();
}

}  // namespace muster
