// Chat templates: how the turns of a conversation become text, and which of it is trained on.
//
// A model's own template is Jinja (jinja_chat.h); well-known forms are built in (built_in.h).
// Markup and content are separate segments, so that content is encoded with parse_added_tokens off
// and cannot forge the end of its turn.
//
// Immutable, cheap to copy; any thread. Errors name the template's file and line, or the message.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/text/chat/conversation.h"
#include "trainer/text/chat/special_tokens.h"
#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {

struct BuiltInTemplate;
class JinjaChat;

class ChatTemplate {
 public:
  // The model's own: chat_template.jinja of the directory, else chat_template of its
  // tokenizer_config.json (a text, or a list of named ones, of which "default" counts, and
  // "tool_use" where there are tools). kNotFound: it has none.
  static Result<ChatTemplate> Load(const std::string& model_dir);
  // A .jinja file, with the model's special tokens.
  static Result<ChatTemplate> LoadFile(const std::string& path, const std::string& model_dir);
  // chatml, llama2, llama3, mistral, zephyr or openassistant.
  static Result<ChatTemplate> BuiltIn(const std::string& name, SpecialTokens tokens = {});

  Result<std::vector<ChatSegment>> Render(const Conversation& conversation,
                                          const ChatRenderOptions& options = {}) const;

  // OK, or a status that names the tokens that the tokenizer lacks, and the way out. A template in
  // Jinja says nothing about its tokens and passes.
  Status CheckTokens(const Tokenizer& tokenizer) const;
  // Null: it is one in Jinja.
  const BuiltInTemplate* built_in() const { return built_in_; }

 private:
  ChatTemplate() = default;

  const BuiltInTemplate* built_in_ = nullptr;
  SpecialTokens tokens_;
  std::shared_ptr<const JinjaChat> jinja_;  // where there is no built-in one
};

// The template that `choice` names: a built-in one, the path of a .jinja file, or auto: the model's
// own, else chatml where the tokenizer has its tokens. kNotFound: auto, and there is neither.
// `model_dir` empty: the model has no files.
Result<ChatTemplate> ChooseChatTemplate(const std::string& choice, const std::string& model_dir,
                                        const Tokenizer& tokenizer);

// The ids of a conversation. What the tokenizer puts in front of every text (Llama 3: begin of
// text) is put in front of a built-in template's text that does not begin with it; a template in
// Jinja writes it itself.
Result<EncodedChat> EncodeChat(const ChatTemplate& chat_template, const Conversation& conversation,
                               const Tokenizer& tokenizer, const ChatRenderOptions& options = {});

// The added tokens that end an assistant's turn, as training on conversations teaches them: that
// behind an answer, and that behind a call of a tool where it is another (gpt-oss: <|return|> and
// <|call|>). None: the template ends turns with plain text, or renders no question with its answer.
std::vector<std::int32_t> EndsOfTurn(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

// ChatRenderOptions::now of a day such as "2026-01-31", in the zone of this process, in which
// templates write it; nothing for "".
std::optional<std::int64_t> NoonOf(std::string_view date);

}  // namespace muster
