// A TrainCursor as JSON, the same in shards and in single-file state dicts. Private to
// trainer/state/checkpoint: it drags nlohmann-json along.
#pragma once

#include "common/base/json.h"
#include "trainer/state/checkpoint/checkpoint.h"

namespace muster {

nlohmann::json CursorToJson(const TrainCursor& cursor);
// Throws nlohmann::json::exception where a member is missing or of another type.
TrainCursor CursorFromJson(const nlohmann::json& object);

}  // namespace muster
