#include "common/job_spec/adapter_block.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/strings.h"
#include "common/job_spec/lora_targets.h"

namespace muster {
namespace {

// Beyond, products overflow in fp32 before anything is learned.
const NumberRange kAlpha = {"above 0, at most 1000000",
                            [](double v) { return v > 0 && v <= 1'000'000; }};
const NumberRange kDropout = {"at least 0 and below 1", [](double v) { return v >= 0 && v < 1; }};

// In the order in which a block has them.
std::vector<std::string> KnownTargets() {
  std::vector<std::string> known = kAdapterModules;
  known.insert(known.end(), kExpertParameters.begin(), kExpertParameters.end());
  return known;
}

// A list of modules, or PEFT's word for all of them, the default.
void ReadTargets(MapReader& lora, std::vector<std::string>* out) {
  static constexpr char kKey[] = "target_modules";
  const auto node = lora.Node(kKey);
  if (!node || node->IsNull()) return;
  const std::vector<std::string> known = KnownTargets();
  if (node->IsScalar()) {
    if (node->Scalar() != kAllLinear.front())
      lora.Error(kKey, "must be all-linear or a list of " + Join(known) + ", got '" +
                           node->Scalar() + "'");
    return;
  }
  out->clear();
  lora.TextList(kKey, out);
  for (const std::string& module : *out) {
    if (std::ranges::find(known, module) != known.end()) continue;
    const bool whole = module == "lm_head" || module == "embed_tokens";
    const bool router = module == "gate" || module == "mlp.gate" || module == "router";
    lora.Error(kKey, "must be all-linear or a list of " + Join(known) + ", got '" + module + "'" +
                         (whole    ? "; modules_to_save trains it whole"
                          : router ? "; routers stay frozen beside adapters"
                                   : ""));
  }
  // In the order in which a block has them, each once.
  std::vector<std::string> ordered;
  for (const std::string& module : known)
    if (std::ranges::find(*out, module) != out->end()) ordered.push_back(module);
  *out = ordered;
}

void ReadLora(MapReader& train, std::optional<LoraSpec>* out) {
  const auto node = train.Node("lora");
  if (!node || node->IsNull()) return;
  auto map = train.Map("lora");
  if (!map) return;
  LoraSpec& lora = out->emplace();
  map->Integer("r", {1, 4096}, &lora.r);
  lora.alpha = 2.0 * lora.r;
  map->Number("alpha", kAlpha, &lora.alpha);
  map->Number("dropout", kDropout, &lora.dropout);
  map->Boolean("rslora", &lora.rslora);
  std::string bias = "none";
  map->Choice("bias", {{"none", "all", "lora_only"}, {}}, &bias);
  lora.bias = bias == "all"         ? LoraBias::kAll
              : bias == "lora_only" ? LoraBias::kLoraOnly
                                    : LoraBias::kNone;
  ReadTargets(*map, &lora.target_modules);
  map->TextList("modules_to_save", &lora.modules_to_save);
  map->Text("init_from", &lora.init_from);
  if (lora.target_modules.empty())
    map->Error("target_modules", "names no module; an adapter has one at least");
  map->Finish();
}

void ReadQuantization(MapReader& train, std::optional<QuantizationSpec>* out) {
  const auto node = train.Node("quantization");
  if (!node || node->IsNull()) return;
  auto map = train.Map("quantization");
  if (!map) return;
  QuantizationSpec& quantization = out->emplace();
  std::string kind = "nf4";
  map->Choice("kind", {{"nf4"}, {"fp4", "int8", "fp8"}}, &kind);
  map->Boolean("double_quant", &quantization.double_quant);
  map->Finish();
}

}  // namespace

void ReadAdapters(MapReader& train, TrainSpec* out) {
  ReadLora(train, &out->lora);
  ReadQuantization(train, &out->quantization);
  if (out->quantization && !out->lora)
    train.Error("quantization", "is for frozen weights; it needs a lora section");
  if (out->lora && !out->init_from.path.empty())
    train.Error("init_from", "does not go with lora; lora.init_from takes an adapter");
}

}  // namespace muster
