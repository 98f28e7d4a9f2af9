// A model's chat template, rendered over a conversation.
#include <string>

#include "common/base/json.h"
#include "tests/fuzz/fuzz.h"
#include "trainer/text/chat/jinja/template.h"

namespace {

using namespace muster;

constexpr char kConversation[] = R"({
  "messages": [{"role": "system", "content": "Be kind."},
               {"role": "user", "content": "What is \u00e4 + 1?"},
               {"role": "assistant", "content": "<think>hm</think> 2",
                "tool_calls": [{"type": "function",
                                "function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]},
               {"role": "tool", "content": "{\"y\": true}"}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
  "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 3,
  "xs": [3, 1, 2], "d": {"b": 1, "a": "z"}})";

jinja::RenderInput MakeInput() {
  jinja::RenderInput input{.now = 1'700'000'000};
  const auto variables = nlohmann::ordered_json::parse(kConversation);
  for (const auto& [name, value] : variables.items())
    input.variables.emplace_back(name, jinja::FromJson(value));
  return input;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const jinja::RenderInput input = MakeInput();
  const auto parsed = jinja::Template::Parse(fuzz::TextOf(data, size), "template");
  if (!parsed.ok()) {
    fuzz::Require(parsed.status().code() == StatusCode::kInvalidArgument,
                  parsed.status().ToString());
    return 0;
  }
  const auto text = parsed->Render(input, {.steps = 20'000});
  fuzz::Require(text.ok() || text.status().code() == StatusCode::kInvalidArgument,
                text.status().ToString());
  return 0;
}
