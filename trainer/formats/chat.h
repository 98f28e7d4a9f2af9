// Chat templates: how the turns of a conversation become text, and which of it is trained on.
//
// ChatML is built in; a template in tokenizer_config.json is Jinja and not run. Markup and content
// are separate segments, so that content is encoded with parse_added_tokens off and cannot forge
// the end of its turn. Trained on: what an assistant says and the <|im_end|> after it.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/tokenizer/tokenizer.h"

namespace muster {

struct ChatMessage {
  std::string role;  // system | user | assistant | tool
  std::string content;

  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

struct ChatSegment {
  std::string text;
  bool trained = false;
  bool markup = false;  // written by the template: its added tokens are meant

  friend bool operator==(const ChatSegment&, const ChatSegment&) = default;
};

enum class GenerationPrompt { kNone, kAssistant };

// "<|im_start|>role\ncontent<|im_end|>\n" for each message; kAssistant opens the answer after them.
std::vector<ChatSegment> RenderChatml(const std::vector<ChatMessage>& messages,
                                      GenerationPrompt prompt = GenerationPrompt::kNone);

bool HasChatmlTokens(const Tokenizer& tokenizer);

// Whether `chat_template` (auto | chatml) can be used with this tokenizer: OK, or a status that
// names the way out. Both need <|im_start|> and <|im_end|> in the vocabulary.
Status CheckChatTemplate(const std::string& chat_template, const Tokenizer& tokenizer);

// The ids of a conversation that waits for the assistant's answer.
std::vector<std::int32_t> EncodeChatPrompt(const std::vector<ChatMessage>& messages,
                                           const Tokenizer& tokenizer);

}  // namespace muster
