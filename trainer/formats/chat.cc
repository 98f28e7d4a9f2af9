#include "trainer/formats/chat.h"

namespace muster {
namespace {

constexpr char kImStart[] = "<|im_start|>";
constexpr char kImEnd[] = "<|im_end|>";

}  // namespace

std::vector<ChatSegment> RenderChatml(const std::vector<ChatMessage>& messages,
                                      GenerationPrompt prompt) {
  std::vector<ChatSegment> segments;
  const auto markup = [&](std::string text, bool trained) {
    segments.push_back({std::move(text), trained, true});
  };
  for (const ChatMessage& message : messages) {
    const bool trained = message.role == "assistant";
    markup(std::string(kImStart) + message.role + "\n", false);
    if (!message.content.empty()) segments.push_back({message.content, trained, false});
    markup(kImEnd, trained);
    markup("\n", false);
  }
  if (prompt == GenerationPrompt::kAssistant) markup(std::string(kImStart) + "assistant\n", false);
  return segments;
}

bool HasChatmlTokens(const Tokenizer& tokenizer) {
  return tokenizer.TokenId(kImStart).has_value() && tokenizer.TokenId(kImEnd).has_value();
}

Status CheckChatTemplate(const std::string& chat_template, const Tokenizer& tokenizer) {
  if (chat_template != "auto" && chat_template != "chatml")
    return Unimplemented("chat_template " + chat_template +
                         " is not known; this version has chatml (and auto, which picks it)");
  if (HasChatmlTokens(tokenizer)) return OkStatus();
  return FailedPrecondition(
      "the tokenizer has no <|im_start|> and <|im_end|>, which chat rows need for the chatml "
      "template; train a model that has them, or give the rows as prompt and completion");
}

std::vector<std::int32_t> EncodeChatPrompt(const std::vector<ChatMessage>& messages,
                                           const Tokenizer& tokenizer) {
  // What the tokenizer puts in front of every text (Llama 3) belongs in front of a chat, too.
  std::vector<std::int32_t> ids = tokenizer.Prefix();
  for (const ChatSegment& segment : RenderChatml(messages, GenerationPrompt::kAssistant)) {
    const auto part = tokenizer.Encode(segment.text, {.parse_added_tokens = segment.markup});
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

}  // namespace muster
