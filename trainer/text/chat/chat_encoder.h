// ChatEncoder: the ids of segments that follow each other.
//
// Plain text is encoded in one piece across segments, up to the next added token that the markup
// means, and up to where what is trained on begins or ends: so the ids are those of the whole text,
// but that content holds no added tokens except those of white space. White space that an added
// token takes along is gone, in markup and content.
//
// Made for one conversation; refers to the tokenizer, which outlives it. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/text/chat/conversation.h"
#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {

class ChatEncoder {
 public:
  explicit ChatEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void Add(const ChatSegment& segment);
  // What was added since the encoder was made; call once.
  EncodedChat Take();

 private:
  // A part of markup: plain text, or ids that are taken as they are.
  struct Part {
    std::string text;
    std::vector<std::int32_t> ids = {};
  };
  std::vector<Part> PartsOf(const std::string& markup) const;
  void AddText(std::string text, std::optional<std::int32_t> next, std::vector<Part>* parts) const;
  bool Gives(const std::vector<Part>& parts, const std::vector<std::int32_t>& ids) const;
  // Plain text behind `ids`.
  std::vector<std::int32_t> EncodeBehind(const std::vector<std::int32_t>& ids,
                                         const std::string& text) const;
  bool GoesOnBehind(std::int32_t added_token) const;
  void DropSpaceBefore(std::int32_t added_token, std::string* text) const;
  void DropSpaceBehind(std::int32_t added_token, std::string* text) const;
  void EndPlain();
  void Push(const std::vector<std::int32_t>& ids);

  const Tokenizer& tokenizer_;
  EncodedChat chat_;
  std::string plain_;  // not encoded yet
  bool trained_ = false;
  mutable std::map<std::int32_t, bool> goes_on_;  // GoesOnBehind, by added token
};

}  // namespace muster
