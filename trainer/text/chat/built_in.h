// The built-in chat templates: well-known forms, for models that bring no template of their own.
//
// Markup and content are separate segments. Trained on: what an assistant says, and the token that
// ends its turn. Pure functions; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/text/chat/conversation.h"
#include "trainer/text/chat/special_tokens.h"

namespace muster {

struct BuiltInTemplate {
  std::string_view name;
  // What the tokenizer must have. <s> and </s> stand for the model's own bos_token and eos_token.
  std::span<const std::string_view> tokens;
  Result<std::vector<ChatSegment>> (*render)(const Conversation& conversation,
                                             const SpecialTokens& tokens, GenerationPrompt prompt);
};

// chatml, llama2, llama3, mistral, zephyr, openassistant; null: none of them.
const BuiltInTemplate* FindBuiltIn(std::string_view name);

// A required token as this model spells it.
std::string SpellToken(std::string_view token, const SpecialTokens& tokens);

}  // namespace muster
