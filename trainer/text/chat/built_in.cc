#include "trainer/text/chat/built_in.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/json.h"

namespace muster {
namespace {

using Segments = std::vector<ChatSegment>;
using Tokens = std::span<const std::string_view>;

constexpr std::string_view kChatmlTokens[] = {"<|im_start|>", "<|im_end|>"};
constexpr std::string_view kLlama2Tokens[] = {"<s>", "</s>"};
constexpr std::string_view kLlama3Tokens[] = {"<|begin_of_text|>", "<|start_header_id|>",
                                              "<|end_header_id|>", "<|eot_id|>"};
constexpr std::string_view kZephyrTokens[] = {"</s>"};
constexpr std::string_view kOpenAssistantTokens[] = {"<|prompter|>", "<|assistant|>",
                                                     "<|endoftext|>"};

// Collects segments; empty ones are left out.
class Writer {
 public:
  void Markup(std::string_view text, bool trained = false) {
    if (!text.empty()) segments_.push_back({std::string(text), trained, true});
  }
  void Content(std::string_view text, bool trained = false) {
    if (!text.empty()) segments_.push_back({std::string(text), trained, false});
  }
  Segments Take() { return std::move(segments_); }

 private:
  Segments segments_;
};

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

bool HasToolCalls(const ChatMessage& message) {
  if (message.json.empty()) return false;
  const auto json = nlohmann::ordered_json::parse(message.json, nullptr, false);
  return json.is_object() && json.contains("tool_calls") && !json["tool_calls"].empty();
}

std::string Where(std::size_t i) { return "messages[" + std::to_string(i) + "] "; }

// Built-in forms have no words for tools; `tool_role`: but for what a tool answered.
Status CheckPlain(const Conversation& conversation, const char* name, bool tool_role = false) {
  static constexpr char kWay[] = "; use the model's own template, or one in a .jinja file";
  const std::string form = std::string("the built-in template ") + name;
  if (!conversation.tools.empty())
    return InvalidArgument(form + " has no form for \"tools\"" + kWay);
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage& message = conversation.messages[i];
    if (HasToolCalls(message))
      return InvalidArgument(Where(i) + "has tool_calls, for which " + form + " has no form" +
                             kWay);
    if (message.role == "tool" && !tool_role)
      return InvalidArgument(Where(i) + "is a tool's, for which " + form + " has no form" + kWay);
  }
  return OkStatus();
}

Result<Segments> RenderChatml(const Conversation& conversation, const SpecialTokens&,
                              GenerationPrompt prompt) {
  MUSTER_RETURN_IF_ERROR(CheckPlain(conversation, "chatml", true));
  Writer out;
  for (const ChatMessage& message : conversation.messages) {
    const bool trained = message.role == "assistant";
    out.Markup("<|im_start|>" + message.role + "\n");
    out.Content(message.content, trained);
    out.Markup("<|im_end|>", trained);
    out.Markup("\n");
  }
  if (prompt == GenerationPrompt::kAssistant) out.Markup("<|im_start|>assistant\n");
  return out.Take();
}

Result<Segments> RenderLlama3(const Conversation& conversation, const SpecialTokens&,
                              GenerationPrompt prompt) {
  MUSTER_RETURN_IF_ERROR(CheckPlain(conversation, "llama3"));
  const auto header = [](const std::string& role) {
    return "<|start_header_id|>" + role + "<|end_header_id|>\n\n";
  };
  Writer out;
  out.Markup("<|begin_of_text|>");
  for (const ChatMessage& message : conversation.messages) {
    const bool trained = message.role == "assistant";
    out.Markup(header(message.role));
    out.Content(Trimmed(message.content), trained);
    out.Markup("<|eot_id|>", trained);
  }
  if (prompt == GenerationPrompt::kAssistant) out.Markup(header("assistant"));
  return out.Take();
}

Result<Segments> RenderZephyr(const Conversation& conversation, const SpecialTokens& tokens,
                              GenerationPrompt prompt) {
  MUSTER_RETURN_IF_ERROR(CheckPlain(conversation, "zephyr"));
  Writer out;
  for (const ChatMessage& message : conversation.messages) {
    const bool trained = message.role == "assistant";
    out.Markup("<|" + message.role + "|>\n");
    out.Content(message.content, trained);
    out.Markup(SpellToken("</s>", tokens), trained);
    out.Markup("\n");
  }
  if (prompt == GenerationPrompt::kAssistant) out.Markup("<|assistant|>\n");
  return out.Take();
}

Result<Segments> RenderOpenAssistant(const Conversation& conversation, const SpecialTokens&,
                                     GenerationPrompt prompt) {
  MUSTER_RETURN_IF_ERROR(CheckPlain(conversation, "openassistant"));
  Writer out;
  for (const ChatMessage& message : conversation.messages) {
    const bool trained = message.role == "assistant";
    out.Markup("<|" + (message.role == "user" ? "prompter" : message.role) + "|>");
    out.Content(message.content, trained);
    out.Markup("<|endoftext|>", trained);
  }
  if (prompt == GenerationPrompt::kAssistant) out.Markup("<|assistant|>");
  return out.Take();
}

// The forms with [INST] know a system message at the beginning only, then user and assistant in
// turn.
Status CheckAlternation(const Conversation& conversation, const char* name) {
  const auto& messages = conversation.messages;
  const std::size_t first = !messages.empty() && messages[0].role == "system" ? 1 : 0;
  for (std::size_t i = first; i < messages.size(); ++i) {
    const char* due = (i - first) % 2 == 0 ? "user" : "assistant";
    if (messages[i].role != due)
      return InvalidArgument(Where(i) + "is of the role " + messages[i].role +
                             ", but the built-in template " + name + " needs " + due +
                             " there: a system message may come first, then user and assistant "
                             "in turn");
  }
  if (first == 1 && messages.size() == 1)
    return InvalidArgument(Where(0) + "is a system message alone, which the built-in template " +
                           name + " has no form for");
  return OkStatus();
}

struct InstForm {
  const char* name;
  std::string_view system_begin;
  std::string_view system_end;
  bool bos_each_turn;
  bool trims;
  std::string_view answer_end;  // before the end token
};

Result<Segments> RenderInst(const Conversation& conversation, const SpecialTokens& tokens,
                            const InstForm& form) {
  MUSTER_RETURN_IF_ERROR(CheckPlain(conversation, form.name));
  MUSTER_RETURN_IF_ERROR(CheckAlternation(conversation, form.name));
  Writer out;
  std::string_view system;
  bool first = true;
  for (const ChatMessage& message : conversation.messages) {
    const std::string_view content =
        form.trims ? Trimmed(message.content) : std::string_view(message.content);
    if (message.role == "system") {
      system = message.content;
    } else if (message.role == "user") {
      if (first || form.bos_each_turn) out.Markup(SpellToken("<s>", tokens));
      out.Markup("[INST] ");
      if (first && !system.empty()) {
        out.Markup(form.system_begin);
        out.Content(system);
        out.Markup(form.system_end);
      }
      out.Content(content);
      out.Markup(" [/INST]");
      first = false;
    } else {
      out.Markup(" ", true);
      out.Content(content, true);
      out.Markup(std::string(form.answer_end) + SpellToken("</s>", tokens), true);
    }
  }
  return out.Take();
}

Result<Segments> RenderLlama2(const Conversation& conversation, const SpecialTokens& tokens,
                              GenerationPrompt) {
  return RenderInst(conversation, tokens,
                    {.name = "llama2",
                     .system_begin = "<<SYS>>\n",
                     .system_end = "\n<</SYS>>\n\n",
                     .bos_each_turn = true,
                     .trims = true,
                     .answer_end = " "});
}

Result<Segments> RenderMistral(const Conversation& conversation, const SpecialTokens& tokens,
                               GenerationPrompt) {
  return RenderInst(conversation, tokens,
                    {.name = "mistral",
                     .system_begin = "",
                     .system_end = "\n\n",
                     .bos_each_turn = false,
                     .trims = false,
                     .answer_end = ""});
}

constexpr BuiltInTemplate kTemplates[] = {
    {"chatml", Tokens(kChatmlTokens), RenderChatml},
    {"llama2", Tokens(kLlama2Tokens), RenderLlama2},
    {"llama3", Tokens(kLlama3Tokens), RenderLlama3},
    {"mistral", Tokens(kLlama2Tokens), RenderMistral},
    {"zephyr", Tokens(kZephyrTokens), RenderZephyr},
    {"openassistant", Tokens(kOpenAssistantTokens), RenderOpenAssistant},
};

}  // namespace

const BuiltInTemplate* FindBuiltIn(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTemplates), std::end(kTemplates),
                                   [&](const BuiltInTemplate& each) { return each.name == name; });
  return found == std::end(kTemplates) ? nullptr : found;
}

std::string SpellToken(std::string_view token, const SpecialTokens& tokens) {
  const std::string own = token == "<s>"    ? tokens.Find("bos_token")
                          : token == "</s>" ? tokens.Find("eos_token")
                                            : std::string();
  return own.empty() ? std::string(token) : own;
}

}  // namespace muster
