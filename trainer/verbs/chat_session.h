// ChatSession: a conversation with a model, turn after turn, and the loop that reads turns from a
// person.
//
// One thread. The generator outlives it.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/text/chat/chat.h"
#include "trainer/verbs/text_generator.h"

namespace muster {

class ChatSession {
 public:
  // `system` is the system turn that every conversation begins with; empty: it has none.
  ChatSession(TextGenerator& generator, ChatTemplate chat_template, GenerationSettings settings,
              std::string system);

  // The assistant's answer to a user's turn; both are part of the conversation from then on. When
  // that fails (it is longer than the model's context, or the template refuses it), nothing is.
  Result<Generated> Say(const std::string& text, const TextSink& sink);
  // Begins a new conversation.
  void Clear();
  // What Say would have the generator go on from, and how.
  Result<std::vector<std::int32_t>> PromptOf(const std::string& text) const;
  const GenerationSettings& settings() const { return settings_; }

  std::size_t messages() const { return conversation_.messages.size(); }

 private:
  Conversation With(const std::string& text) const;

  TextGenerator& generator_;
  const ChatTemplate template_;
  GenerationSettings settings_;
  const std::string system_;
  Conversation conversation_;
};

// Reads a user's turn from each line of `in` until it ends or says /exit, and writes the answers to
// `out`; /clear begins a new conversation, /help says so. `interrupted` is asked between two tokens
// and ends the answer.
void Converse(ChatSession& session, std::istream& in, std::ostream& out,
              const std::function<bool()>& interrupted);

}  // namespace muster
