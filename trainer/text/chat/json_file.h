// Reading of the JSON files beside a model. Private to trainer/text/chat.
#pragma once

#include <string>

#include "common/base/json.h"
#include "common/base/result.h"

namespace muster {

// The object that the file holds. kNotFound: there is no file; kInvalidArgument: it is no object.
Result<nlohmann::ordered_json> ReadJsonObject(const std::string& path);

}  // namespace muster
