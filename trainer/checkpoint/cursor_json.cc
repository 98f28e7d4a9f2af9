#include "trainer/checkpoint/cursor_json.h"

namespace muster {

nlohmann::json CursorToJson(const TrainCursor& cursor) {
  return {{"step", cursor.step},
          {"samples", cursor.samples},
          {"tokens", cursor.tokens},
          {"seed", cursor.seed},
          {"sample_chain", cursor.sample_chain},
          {"optimizer_steps", cursor.optimizer_steps},
          {"loss_scale", cursor.loss_scale},
          {"loss_scale_steps", cursor.loss_scale_steps}};
}

TrainCursor CursorFromJson(const nlohmann::json& object) {
  TrainCursor cursor;
  cursor.step = object.at("step").get<Step>();
  cursor.samples = object.at("samples").get<std::int64_t>();
  cursor.tokens = object.at("tokens").get<std::int64_t>();
  cursor.seed = object.at("seed").get<std::uint64_t>();
  cursor.sample_chain = object.at("sample_chain").get<std::uint64_t>();
  // The first shards had none of these: every step was an update, and there was no fp16.
  cursor.optimizer_steps = object.value("optimizer_steps", cursor.step);
  cursor.loss_scale = object.value("loss_scale", cursor.loss_scale);
  cursor.loss_scale_steps = object.value("loss_scale_steps", cursor.loss_scale_steps);
  return cursor;
}

}  // namespace muster
