// RowParser: one row of a training file as the samples that it holds, in text.
//
// Pure: text in, values out; any thread. Errors say what is wrong with the row; the caller adds
// file and line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/text/chat/conversation.h"

namespace muster {

// A sample in the form in which its row gave it.
struct RowSample {
  enum class Kind {
    kChat,    // messages
    kAnswer,  // prompt and answer
    kText,    // text
  };
  Kind kind = Kind::kText;
  std::vector<ChatMessage> messages;  // kChat
  std::string tools = {};             // kChat: "tools" as JSON; empty: it has none
  std::string user;                   // kAnswer: what a user's turn says
  std::string prompt;                 // kAnswer: what stands before the answer without chat tokens
  std::string answer;                 // kAnswer
  std::string text;                   // kText

  friend bool operator==(const RowSample&, const RowSample&) = default;
};

// The samples of a row: one, or one for each instance of a self-instruct row. `text_field` is the
// key of plain text; another one than "text" was chosen by the user and counts before every form.
Result<std::vector<RowSample>> ParseRow(std::string_view line,
                                        const std::string& text_field = "text");

}  // namespace muster
