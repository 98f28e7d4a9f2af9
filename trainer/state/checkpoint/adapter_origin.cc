#include "trainer/state/checkpoint/adapter_origin.h"

#include "common/base/json.h"

namespace muster {

using nlohmann::json;

std::string AdapterOriginToJson(const AdapterOrigin& origin) {
  return json{{"base_model", origin.base_model},
              {"base_weights", origin.base_weights},
              {"form", json::parse(origin.form)}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<AdapterOrigin> AdapterOriginFromJson(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return DataLoss("what it says of its adapter is no JSON object");
  try {
    const json& form = object.at("form");
    if (!form.is_object()) return DataLoss("the form of its adapter is no JSON object");
    return AdapterOrigin{.base_model = object.at("base_model").get<std::string>(),
                         .base_weights = object.at("base_weights").get<std::string>(),
                         .form = form.dump()};
  } catch (const json::exception& error) {
    return DataLoss(std::string("what it says of its adapter is not understood: ") + error.what());
  }
}

}  // namespace muster
