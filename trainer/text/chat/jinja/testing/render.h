// Rendering as tests ask for it.
#pragma once

#include <string>

#include "common/base/json.h"
#include "trainer/text/chat/jinja/template.h"

namespace muster::jinja {

// The variables of a JSON object.
inline RenderInput InputOf(const std::string& json, const FromJsonOptions& options = {}) {
  RenderInput input;
  const auto object = nlohmann::ordered_json::parse(json);
  for (const auto& [name, value] : object.items())
    input.variables.emplace_back(name, FromJson(value, options));
  return input;
}

inline Result<Text> Rendered(const std::string& source, const RenderInput& input = {},
                             const RenderLimits& limits = {}) {
  MUSTER_ASSIGN_OR_RETURN(const Template parsed, Template::Parse(source, "t.jinja"));
  return parsed.Render(input, limits);
}

// The text, or what is wrong.
inline std::string TextOf(const std::string& source, const std::string& variables = "{}") {
  const auto text = Rendered(source, InputOf(variables));
  return text.ok() ? text->bytes() : text.status().message();
}

}  // namespace muster::jinja
