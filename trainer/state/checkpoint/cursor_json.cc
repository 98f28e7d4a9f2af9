#include "trainer/state/checkpoint/cursor_json.h"

#include <cmath>

#include "common/base/json_integer.h"

namespace muster {
namespace {

// Infinite losses are left out, for JSON has no word for them.
nlohmann::json EvaluationsToJson(const EvalHistory& history) {
  nlohmann::json json = {{"step", history.step},
                         {"best_step", history.best_step},
                         {"without_better", history.without_better}};
  const auto add = [&json](const char* key, double loss) {
    if (std::isfinite(loss)) json[key] = loss;
  };
  add("loss", history.loss);
  add("best_loss", history.best_loss);
  add("reference_loss", history.reference_loss);
  return json;
}

EvalHistory EvaluationsFromJson(const nlohmann::json& json) {
  EvalHistory history;
  history.step = IntegerOf<Step>(json.at("step"));
  history.best_step = IntegerOf<Step>(json.at("best_step"));
  history.without_better = IntegerOf<std::int64_t>(json.at("without_better"));
  history.loss = json.value("loss", history.loss);
  history.best_loss = json.value("best_loss", history.best_loss);
  history.reference_loss = json.value("reference_loss", history.reference_loss);
  return history;
}

}  // namespace

nlohmann::json CursorToJson(const TrainCursor& cursor) {
  nlohmann::json json = {{"step", cursor.step},
                         {"samples", cursor.samples},
                         {"tokens", cursor.tokens},
                         {"seed", cursor.seed},
                         {"sample_chain", cursor.sample_chain},
                         {"optimizer_steps", cursor.optimizer_steps},
                         {"loss_scale", cursor.loss_scale},
                         {"loss_scale_steps", cursor.loss_scale_steps}};
  // A job that evaluates nothing writes what versions before evaluation did.
  if (cursor.evaluations.step >= 0) json["evaluations"] = EvaluationsToJson(cursor.evaluations);
  return json;
}

TrainCursor CursorFromJson(const nlohmann::json& object) {
  TrainCursor cursor;
  cursor.step = IntegerOf<Step>(object.at("step"));
  cursor.samples = IntegerOf<std::int64_t>(object.at("samples"));
  cursor.tokens = IntegerOf<std::int64_t>(object.at("tokens"));
  cursor.seed = IntegerOf<std::uint64_t>(object.at("seed"));
  cursor.sample_chain = IntegerOf<std::uint64_t>(object.at("sample_chain"));
  // The first shards had none of these: every step was an update, and there was no fp16.
  cursor.optimizer_steps = IntegerOr(object, "optimizer_steps", cursor.step);
  cursor.loss_scale = object.value("loss_scale", cursor.loss_scale);
  cursor.loss_scale_steps = IntegerOr(object, "loss_scale_steps", cursor.loss_scale_steps);
  if (const auto found = object.find("evaluations"); found != object.end())
    cursor.evaluations = EvaluationsFromJson(*found);
  return cursor;
}

}  // namespace muster
