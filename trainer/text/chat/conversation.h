// Conversation: the turns that a chat template renders, the segments that it renders them to, and
// their ids.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace muster {

struct ChatMessage {
  std::string role;  // system | user | assistant | tool
  std::string content;
  // The message as a JSON object where it says more than role and content: tool_calls, name,
  // reasoning_content and whatever else the model's template reads. Empty: it does not.
  std::string json = {};

  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

struct Conversation {
  std::vector<ChatMessage> messages;
  std::string tools = {};  // what the assistant may call, as a JSON list; empty: nothing
};

struct ChatSegment {
  std::string text;
  bool trained = false;
  bool markup = false;  // written by the template: its added tokens are meant

  friend bool operator==(const ChatSegment&, const ChatSegment&) = default;
};

struct EncodedChat {
  std::vector<std::int32_t> ids = {};
  std::vector<std::uint8_t> trained = {};  // one per id
};

enum class GenerationPrompt { kNone, kAssistant };

struct ChatRenderOptions {
  GenerationPrompt prompt = GenerationPrompt::kNone;
  // Unix seconds that a template may write a date from; none: it finds no strftime_now, since rows
  // that are trained on must not depend on the day.
  std::optional<std::int64_t> now = {};
  // Further variables by name, as JSON: {"enable_thinking", "false"}.
  std::vector<std::pair<std::string, std::string>> variables = {};
};

}  // namespace muster
