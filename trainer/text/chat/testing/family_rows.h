// A template's rows of conversations, as tests/golden/chat_rows.py writes them.
#pragma once

#include <string>

#include "common/base/json.h"
#include "trainer/text/chat/jinja/template.h"

namespace muster {

// What strftime_now goes by there (NOW).
inline constexpr std::int64_t kFamilyRowsNow = 1767268800;

// The variables that a conversation, one JSON object, is rendered with.
inline jinja::RenderInput RenderInputOf(const nlohmann::ordered_json& conversation) {
  jinja::RenderInput input{.variables = {{"bos_token", "<s>"}, {"eos_token", "</s>"}},
                           .now = kFamilyRowsNow};
  for (const char* name : {"tools", "documents"})
    if (!conversation.contains(name)) input.variables.emplace_back(name, jinja::None{});
  for (const auto& [key, value] : conversation.items())
    input.variables.emplace_back(key, jinja::FromJson(value));
  return input;
}

}  // namespace muster
