// JinjaChat: a model's own chat template, rendered to segments.
//
// What of the text is the conversation's own (anything of messages and tools but the roles) is
// known exactly, byte by byte, since the engine keeps track of where each byte came from; all else
// is markup. Trained on: what stands within {% generation %}, where the template has it. Else what
// an assistant's message adds: the text up to and with it, less the text before it with the prompt
// for an answer; each must be the beginning of the next and of the whole, or the message is
// refused. Markup may end the last answer in another way than those before it (gpt-oss, Phi-3):
// what only the last one has behind it is trained on there alone.
//
// Immutable, movable, owned by the caller; any thread.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "trainer/text/chat/conversation.h"
#include "trainer/text/chat/jinja/template.h"
#include "trainer/text/chat/special_tokens.h"

namespace muster {

class JinjaChat {
 public:
  // `with_tools` renders conversations that have tools; none: `plain` does.
  JinjaChat(jinja::Template plain, std::optional<jinja::Template> with_tools, SpecialTokens tokens)
      : plain_(std::move(plain)), with_tools_(std::move(with_tools)), tokens_(std::move(tokens)) {}

  Result<std::vector<ChatSegment>> Render(const Conversation& conversation,
                                          const ChatRenderOptions& options) const;

 private:
  // What a rendering takes: the messages as values, so that prefixes of them are cheap.
  struct Prepared {
    std::vector<jinja::Value> messages;
    jinja::RenderInput input;  // all variables but messages and add_generation_prompt
    const jinja::Template* chosen;
  };
  Result<Prepared> Prepare(const Conversation& conversation,
                           const ChatRenderOptions& options) const;
  static Result<jinja::Text> RenderFirst(const Prepared& prepared, std::size_t count,
                                         GenerationPrompt prompt);
  static Status MarkAnswers(const Conversation& conversation, const Prepared& prepared,
                            const jinja::Text& whole, std::vector<bool>* trained);

  jinja::Template plain_;
  std::optional<jinja::Template> with_tools_;
  SpecialTokens tokens_;
};

}  // namespace muster
