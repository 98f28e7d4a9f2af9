#include "trainer/text/chat/chat.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/wall_time.h"
#include "trainer/formats/init_model.h"
#include "trainer/text/chat/built_in.h"
#include "trainer/text/chat/chat_encoder.h"
#include "trainer/text/chat/jinja_chat.h"
#include "trainer/text/chat/json_file.h"

namespace muster {
namespace {

constexpr char kWayOut[] =
    "train a model that has them, choose another data.chat_template, or give the rows as prompt "
    "and "
    "completion";

// The text of the template of that name in a list of them; none: there is none.
std::optional<std::string> NamedTemplate(const nlohmann::ordered_json& list,
                                         const std::string& name) {
  for (const auto& entry : list) {
    const bool named = entry.is_object() && entry.contains("name") && entry["name"] == name;
    if (named && entry.contains("template") && entry["template"].is_string())
      return entry["template"].get<std::string>();
  }
  return std::nullopt;
}

// An answer that calls a tool. Some templates want an id of nine letters or digits.
constexpr char kCall[] = R"({"role": "assistant", "content": "", "tool_calls": [{"id": "123456789",
    "type": "function", "function": {"name": "f", "arguments": {}}}]})";

// The added tokens that what is trained on of an answer ends with, in their order, white space
// aside: Phi-3 has the end of the turn and that of the text.
std::vector<std::int32_t> TrainedEnd(const ChatTemplate& chat_template, const ChatMessage& answer,
                                     const Tokenizer& tokenizer) {
  const Conversation turns{.messages = {{"user", "Hello"}, answer}};
  // The day is no part of the answer.
  const Result<EncodedChat> chat = EncodeChat(chat_template, turns, tokenizer, {.now = 0});
  if (!chat.ok()) return {};
  std::vector<std::int32_t> ends;
  for (std::size_t i = chat->ids.size(); i-- > 0;) {
    const std::int32_t id = chat->ids[i];
    if (chat->trained[i] == 0) continue;
    if (tokenizer.Decode({id}).find_first_not_of(" \t\r\n") == std::string::npos) continue;
    if (!tokenizer.IsAddedToken(id)) break;
    ends.insert(ends.begin(), id);
  }
  return ends;
}

struct TemplateTexts {
  std::string plain;
  std::optional<std::string> with_tools = {};
};

Result<TemplateTexts> TextsOf(const nlohmann::ordered_json& json, const std::string& origin) {
  if (json.is_string()) return TemplateTexts{.plain = json.get<std::string>()};
  if (!json.is_array())
    return InvalidArgument(origin + " is a JSON " + json.type_name() +
                           ", neither a text nor a list of named ones");
  auto plain = NamedTemplate(json, "default");
  if (!plain) return InvalidArgument(origin + " has no template with the name \"default\"");
  return TemplateTexts{.plain = *std::move(plain), .with_tools = NamedTemplate(json, "tool_use")};
}

Result<std::shared_ptr<const JinjaChat>> ParseTexts(const TemplateTexts& texts,
                                                    const std::string& origin,
                                                    const SpecialTokens& tokens) {
  MUSTER_ASSIGN_OR_RETURN(jinja::Template plain, jinja::Template::Parse(texts.plain, origin));
  std::optional<jinja::Template> with_tools;
  if (texts.with_tools) {
    MUSTER_ASSIGN_OR_RETURN(with_tools,
                            jinja::Template::Parse(*texts.with_tools, origin + " (tool_use)"));
  }
  return std::make_shared<const JinjaChat>(std::move(plain), std::move(with_tools), tokens);
}

bool IsFile(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

Result<ChatTemplate> ChatTemplate::LoadFile(const std::string& path, const std::string& model_dir) {
  if (!IsFile(path)) return InvalidArgument("there is no chat template " + path);
  MUSTER_ASSIGN_OR_RETURN(std::string text,
                          ReadFile(path, static_cast<std::int64_t>(jinja::kMaxTemplateBytes)));
  const TemplateTexts texts{.plain = std::move(text)};
  ChatTemplate loaded;
  MUSTER_ASSIGN_OR_RETURN(loaded.tokens_, ReadSpecialTokens(model_dir));
  MUSTER_ASSIGN_OR_RETURN(loaded.jinja_, ParseTexts(texts, path, loaded.tokens_));
  return loaded;
}

Result<ChatTemplate> ChatTemplate::Load(const std::string& model_dir) {
  const std::string file = model_dir + "/chat_template.jinja";
  if (IsFile(file)) return LoadFile(file, model_dir);
  const std::string config = model_dir + "/tokenizer_config.json";
  MUSTER_ASSIGN_OR_RETURN(const auto json, ReadJsonObject(config));
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return NotFound(config + " has no chat_template");
  const std::string origin = config + ": chat_template";
  MUSTER_ASSIGN_OR_RETURN(const TemplateTexts texts, TextsOf(*found, origin));
  // The same text, but nothing is trained on behind the end of a turn.
  if (texts.plain == kChatmlJinja) return BuiltIn("chatml");
  ChatTemplate loaded;
  MUSTER_ASSIGN_OR_RETURN(loaded.tokens_, ReadSpecialTokens(model_dir));
  MUSTER_ASSIGN_OR_RETURN(loaded.jinja_, ParseTexts(texts, origin, loaded.tokens_));
  return loaded;
}

Result<ChatTemplate> ChatTemplate::BuiltIn(const std::string& name, SpecialTokens tokens) {
  ChatTemplate built_in;
  built_in.built_in_ = FindBuiltIn(name);
  if (built_in.built_in_ == nullptr)
    return InvalidArgument("there is no built-in chat template " + name +
                           "; there are chatml, llama2, llama3, mistral, zephyr and openassistant");
  built_in.tokens_ = std::move(tokens);
  return built_in;
}

Result<std::vector<ChatSegment>> ChatTemplate::Render(const Conversation& conversation,
                                                      const ChatRenderOptions& options) const {
  if (built_in_ != nullptr) return built_in_->render(conversation, tokens_, options.prompt);
  return jinja_->Render(conversation, options);
}

Status ChatTemplate::CheckTokens(const Tokenizer& tokenizer) const {
  if (built_in_ == nullptr) return OkStatus();
  std::string missing;
  for (const std::string_view token : built_in_->tokens) {
    const std::string spelled = SpellToken(token, tokens_);
    if (!tokenizer.TokenId(spelled)) missing += (missing.empty() ? "" : " and ") + spelled;
  }
  if (missing.empty()) return OkStatus();
  return FailedPrecondition("the tokenizer has no " + missing +
                            ", which chat rows need for the template " +
                            std::string(built_in_->name) + "; " + kWayOut);
}

Result<ChatTemplate> ChooseChatTemplate(const std::string& choice, const std::string& model_dir,
                                        const Tokenizer& tokenizer) {
  if (choice.ends_with(".jinja")) return ChatTemplate::LoadFile(choice, model_dir);
  if (choice == "none")
    return NotFound(
        "messages need a chat template, and data.chat_template is none; name one there, or give "
        "the rows as prompt and completion");
  if (choice == "auto" && !model_dir.empty()) {
    auto own = ChatTemplate::Load(model_dir);
    if (own.ok() || own.status().code() != StatusCode::kNotFound) return own;
  }
  SpecialTokens tokens;
  if (!model_dir.empty()) {
    MUSTER_ASSIGN_OR_RETURN(tokens, ReadSpecialTokens(model_dir));
  }
  MUSTER_ASSIGN_OR_RETURN(ChatTemplate chosen,
                          ChatTemplate::BuiltIn(choice == "auto" ? "chatml" : choice, tokens));
  const Status usable = chosen.CheckTokens(tokenizer);
  if (usable.ok()) return chosen;
  if (choice != "auto") return usable;
  return NotFound(
      "the model has no chat template, and its tokenizer has no <|im_start|> and <|im_end|>, which "
      "chat rows need for chatml; name a template in data.chat_template, add the two to "
      "train.model.add_tokens, or give the rows as prompt and completion");
}

Result<EncodedChat> EncodeChat(const ChatTemplate& chat_template, const Conversation& conversation,
                               const Tokenizer& tokenizer, const ChatRenderOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const auto segments, chat_template.Render(conversation, options));
  ChatEncoder encoder(tokenizer);
  for (const ChatSegment& segment : segments) encoder.Add(segment);
  EncodedChat chat = encoder.Take();
  const auto& prefix = tokenizer.Prefix();
  const bool has_prefix = chat.ids.size() >= prefix.size() &&
                          std::equal(prefix.begin(), prefix.end(), chat.ids.begin());
  if (chat_template.built_in() != nullptr && !has_prefix) {
    chat.ids.insert(chat.ids.begin(), prefix.begin(), prefix.end());
    chat.trained.insert(chat.trained.begin(), prefix.size(), 0);
  }
  return chat;
}

std::vector<std::int32_t> EndsOfTurn(const ChatTemplate& chat_template,
                                     const Tokenizer& tokenizer) {
  const auto said = TrainedEnd(chat_template, {"assistant", "Hello"}, tokenizer);
  if (said.empty()) return {};
  std::vector<std::int32_t> ends = {said.front()};
  const auto called =
      TrainedEnd(chat_template, {.role = "assistant", .content = "", .json = kCall}, tokenizer);
  if (!called.empty() && std::find(called.begin(), called.end(), said.front()) == called.end())
    ends.push_back(called.back());
  return ends;
}

std::optional<std::int64_t> NoonOf(std::string_view date) {
  const std::optional<CivilTime> day = TakeCivilTime(&date);
  if (!day || !date.empty()) return std::nullopt;
  std::tm parts = {};
  parts.tm_year = day->year - 1900;
  parts.tm_mon = day->month - 1;
  parts.tm_mday = day->day;
  parts.tm_hour = 12;
  parts.tm_isdst = -1;
  return std::mktime(&parts);
}

}  // namespace muster
