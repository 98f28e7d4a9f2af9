#include "trainer/text/chat/jinja_chat.h"

#include <algorithm>

#include "common/base/json.h"
#include "trainer/text/chat/jinja/error.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;
using jinja::Value;

Result<Json> ParseJson(const std::string& text, const std::string& what) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument(what + " is not valid JSON");
  return json;
}

Result<Value> ToValue(const Json& json, const jinja::FromJsonOptions& options) {
  try {
    return jinja::FromJson(json, options);
  } catch (const jinja::Error& error) {
    return InvalidArgument(error.message());
  }
}

// As transformers does: what older data calls thinking or reasoning is found under both names that
// templates read.
void AliasReasoning(Json* message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message->find(name);
    if (found == message->end() || found->is_null()) continue;
    const Json reasoning = *found;
    if (!message->contains("thinking")) (*message)["thinking"] = reasoning;
    (*message)["reasoning_content"] = reasoning;
    return;
  }
}

Result<Value> MessageValue(const ChatMessage& message) {
  Json json = {{"role", message.role}, {"content", message.content}};
  if (!message.json.empty()) {
    MUSTER_ASSIGN_OR_RETURN(json, ParseJson(message.json, "the message"));
    if (!json.is_object()) return InvalidArgument("is no object");
    AliasReasoning(&json);
  }
  return ToValue(json, {.mark = jinja::kInput, .plain_key = "role"});
}

std::string Where(std::size_t i) { return "messages[" + std::to_string(i) + "]"; }

bool StartsWith(const jinja::Text& text, const jinja::Text& start) {
  return text.bytes().starts_with(start.bytes());
}

bool IsContent(const jinja::Text& text, std::size_t i) {
  return (text.MarkAt(i) & jinja::kInput) != 0;
}

// Where an answer that begins at `begin` ends in the whole text, `with` being the text up to and
// with it as the last one. None: more of it differs than markup behind it.
//
// Two tokens may begin alike (<|return|>, <|end|>), so that the end is where the content ends, or a
// token does by its bracket or white space.
std::optional<std::size_t> EndOfAnswer(const jinja::Text& with, const jinja::Text& whole,
                                       std::size_t begin) {
  if (StartsWith(whole, with)) return with.size();
  const auto first = std::mismatch(with.bytes().begin(), with.bytes().end(), whole.bytes().begin(),
                                   whole.bytes().end())
                         .first;
  std::size_t end = static_cast<std::size_t>(first - with.bytes().begin());
  for (std::size_t i = end; i < with.size(); ++i)
    if (IsContent(with, i)) return std::nullopt;
  constexpr std::string_view kEnds = ">] \t\r\n";
  while (end > begin && !IsContent(with, end - 1) &&
         kEnds.find(with.bytes()[end - 1]) == std::string_view::npos)
    --end;
  return end > begin ? std::optional(end) : std::nullopt;
}

std::vector<ChatSegment> ToSegments(const jinja::Text& text, const std::vector<bool>& trained) {
  std::vector<ChatSegment> segments;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto is_content = [&](std::size_t i) { return IsContent(text, i); };
    std::size_t end = begin + 1;
    while (end < text.size() && is_content(end) == is_content(begin) &&
           trained[end] == trained[begin])
      ++end;
    segments.push_back(
        {text.bytes().substr(begin, end - begin), trained[begin], !is_content(begin)});
    begin = end;
  }
  return segments;
}

}  // namespace

Result<JinjaChat::Prepared> JinjaChat::Prepare(const Conversation& conversation,
                                               const ChatRenderOptions& options) const {
  Prepared prepared{
      .messages = {}, .input = {.variables = {}, .now = options.now}, .chosen = &plain_};
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    auto message = MessageValue(conversation.messages[i]);
    if (!message.ok()) return message.status().WithContext(Where(i));
    prepared.messages.push_back(*std::move(message));
  }
  auto& variables = prepared.input.variables;
  for (const auto& [name, text] : options.variables) {
    MUSTER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "the variable " + name));
    MUSTER_ASSIGN_OR_RETURN(Value value, ToValue(json, {}));
    variables.emplace_back(name, std::move(value));
  }
  for (const auto& [name, text] : tokens_.texts) variables.emplace_back(name, Value(text));
  Value tools = jinja::None{};
  if (!conversation.tools.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const Json json, ParseJson(conversation.tools, "\"tools\""));
    MUSTER_ASSIGN_OR_RETURN(tools, ToValue(json, {.mark = jinja::kInput}));
    if (with_tools_) prepared.chosen = &*with_tools_;
  }
  variables.emplace_back("tools", std::move(tools));
  variables.emplace_back("documents", jinja::None{});
  return prepared;
}

Result<jinja::Text> JinjaChat::RenderFirst(const Prepared& prepared, std::size_t count,
                                           GenerationPrompt prompt) {
  jinja::RenderInput input = prepared.input;
  const auto end = prepared.messages.begin() + static_cast<std::ptrdiff_t>(count);
  input.variables.emplace_back("messages", Value());
  try {
    input.variables.back().second = Value::MakeList({prepared.messages.begin(), end});
  } catch (const jinja::Error& error) {
    return InvalidArgument(error.message());
  }
  input.variables.emplace_back("add_generation_prompt", prompt == GenerationPrompt::kAssistant);
  return prepared.chosen->Render(input);
}

Status JinjaChat::MarkAnswers(const Conversation& conversation, const Prepared& prepared,
                              const jinja::Text& whole, std::vector<bool>* trained) {
  const std::size_t count = conversation.messages.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (conversation.messages[i].role != "assistant") continue;
    const auto before = RenderFirst(prepared, i, GenerationPrompt::kAssistant);
    if (!before.ok())
      return before.status().WithContext(Where(i) + ": what stands before it cannot be rendered");
    const auto with = i + 1 == count ? Result<jinja::Text>(whole)
                                     : RenderFirst(prepared, i + 1, GenerationPrompt::kNone);
    if (!with.ok())
      return with.status().WithContext(Where(i) + ": the turns up to it cannot be rendered");
    static constexpr char kWay[] =
        ", so the trained tokens are unknown; use a template that marks them with "
        "{% generation %}, or a built-in one in data.chat_template";
    if (!StartsWith(*with, *before))
      return InvalidArgument(Where(i) +
                             ": the chat template does not render it as the answer to "
                             "its prompt" +
                             kWay);
    const std::optional<std::size_t> end = EndOfAnswer(*with, whole, before->size());
    if (!end)
      return InvalidArgument(Where(i) +
                             ": the chat template renders it differently once other "
                             "turns follow" +
                             kWay);
    std::fill(trained->begin() + static_cast<std::ptrdiff_t>(before->size()),
              trained->begin() + static_cast<std::ptrdiff_t>(*end), true);
  }
  return OkStatus();
}

Result<std::vector<ChatSegment>> JinjaChat::Render(const Conversation& conversation,
                                                   const ChatRenderOptions& options) const {
  MUSTER_ASSIGN_OR_RETURN(const Prepared prepared, Prepare(conversation, options));
  MUSTER_ASSIGN_OR_RETURN(const jinja::Text whole,
                          RenderFirst(prepared, prepared.messages.size(), options.prompt));
  std::vector<bool> trained(whole.size(), false);
  if (options.prompt == GenerationPrompt::kAssistant) return ToSegments(whole, trained);
  if (prepared.chosen->has_generation()) {
    for (std::size_t i = 0; i < whole.size(); ++i)
      trained[i] = (whole.MarkAt(i) & jinja::kTrained) != 0;
  } else {
    MUSTER_RETURN_IF_ERROR(MarkAnswers(conversation, prepared, whole, &trained));
  }
  return ToSegments(whole, trained);
}

}  // namespace muster
