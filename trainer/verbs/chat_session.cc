#include "trainer/verbs/chat_session.h"

#include <istream>
#include <ostream>

#include "common/base/clock.h"

namespace muster {

ChatSession::ChatSession(TextGenerator& generator, ChatTemplate chat_template,
                         GenerationSettings settings, std::string system)
    : generator_(generator),
      template_(std::move(chat_template)),
      settings_(std::move(settings)),
      system_(std::move(system)) {
  settings_.continues_prompt = false;
  // A base model that was trained on conversations has learnt this one, and its files name another.
  for (const std::int32_t end : EndsOfTurn(template_, generator_.tokenizer()))
    settings_.end_ids.push_back(end);
  Clear();
}

void ChatSession::Clear() {
  conversation_ = {};
  if (!system_.empty()) conversation_.messages.push_back({"system", system_});
}

Conversation ChatSession::With(const std::string& text) const {
  Conversation asked = conversation_;
  asked.messages.push_back({"user", text});
  return asked;
}

Result<std::vector<std::int32_t>> ChatSession::PromptOf(const std::string& text) const {
  MUSTER_ASSIGN_OR_RETURN(EncodedChat chat,
                          EncodeChat(template_, With(text), generator_.tokenizer(),
                                     {.prompt = GenerationPrompt::kAssistant,
                                      .now = SystemClock().UnixMillis() / 1000}));
  return std::move(chat.ids);
}

Result<Generated> ChatSession::Say(const std::string& text, const TextSink& sink) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::int32_t> prompt, PromptOf(text));
  MUSTER_ASSIGN_OR_RETURN(Generated made, generator_.Run(prompt, settings_, sink));
  Conversation asked = With(text);
  asked.messages.push_back({"assistant", made.text});
  conversation_ = std::move(asked);
  // The next turn draws other numbers, and the same ones when all is repeated.
  ++settings_.sampling.seed;
  return made;
}

void Converse(ChatSession& session, std::istream& in, std::ostream& out,
              const std::function<bool()>& interrupted) {
  std::string line;
  while (out << "> " << std::flush && std::getline(in, line)) {
    if (line.empty()) continue;
    if (line == "/exit" || line == "/quit") return;
    if (line == "/clear") {
      session.Clear();
      out << "(a new conversation)\n";
      continue;
    }
    if (line == "/help") {
      out << "/clear begins a new conversation, /exit (or the end of input) leaves, "
             "interrupting ends an answer\n";
      continue;
    }
    const auto show = [&](std::string_view piece) {
      out << piece << std::flush;
      return !interrupted();
    };
    const Result<Generated> answer = session.Say(line, show);
    out << '\n';
    if (!answer.ok()) {
      out << "(" << answer.status().message() << "; /clear begins a new conversation)\n";
    } else if (answer->reason != FinishReason::kEndOfText &&
               answer->reason != FinishReason::kStop) {
      out << "(ended by " << FinishReasonName(answer->reason) << ")\n";
    }
  }
  out << '\n';
}

}  // namespace muster
