#include "common/job_spec/eval_block.h"

#include <string>

namespace muster {
namespace {

constexpr std::int64_t kMaxCount = 1'000'000'000;
// Every prompt costs a forward pass over the whole model for each of its new tokens.
constexpr std::size_t kMaxSamples = 64;

const NumberRange kNotNegative = {"0 or more", [](double v) { return v >= 0; }};

void ReadEarlyStop(MapReader& eval, EarlyStopSpec* out) {
  const auto node = eval.Node("early_stop");
  if (!node || node->IsNull()) return;
  auto map = eval.Map("early_stop");
  if (!map) return;
  map->Require("patience", "give the number of evaluations in a row that may bring nothing better");
  map->Integer("patience", {1, 1'000'000}, &out->patience);
  map->Number("min_delta", kNotNegative, &out->min_delta);
  map->Finish();
}

void ReadSamples(MapReader& eval, std::vector<std::string>* out) {
  if (const auto node = eval.Node("samples"); !node || node->IsNull()) return;
  eval.TextList("samples", out);
  if (out->size() > kMaxSamples)
    eval.Error("samples", "has " + std::to_string(out->size()) + " prompts, more than " +
                              std::to_string(kMaxSamples));
  for (const std::string& prompt : *out)
    if (prompt.empty()) eval.Error("samples", "has a prompt without text");
}

}  // namespace

void ReadEvaluation(MapReader& train, TrainSpec* out) {
  const auto node = train.Node("eval");
  if (!node || node->IsNull()) return;
  auto map = train.Map("eval");
  if (!map) return;
  EvalSpec& eval = out->eval;
  map->Integer("every", {1, kMaxCount}, &eval.every);
  map->Boolean("at_start", &eval.at_start);
  ReadSamples(*map, &eval.samples);
  map->Integer("max_new_tokens", {1, 4096}, &eval.max_new_tokens);
  ReadEarlyStop(*map, &eval.early_stop);
  map->Boolean("keep_best", &eval.keep_best);
  map->Finish();
  if (!out->evaluates())
    train.Error("eval", "needs rows to evaluate on: give data.eval or data.eval_ratio");
}

void ReadExportedState(MapReader& output, TrainSpec* out) {
  std::string word = "last";
  output.Choice("export", {{"last", "best"}, {}}, &word);
  if (word != "best") return;
  out->output_export = ExportedState::kBest;
  if (!out->evaluates())
    output.Error("export", "best needs evaluations: give data.eval or data.eval_ratio");
  else if (!out->eval.keep_best)
    output.Error("export", "best needs eval.keep_best: true");
}

}  // namespace muster
