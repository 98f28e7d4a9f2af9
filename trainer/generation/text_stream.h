// TextStream: the text of tokens as they come, in whole characters.
//
// A token may end within a character, and what a token decodes to may depend on those before it
// (tokenizers that put a blank in front of a text take it off again). So a window of the last
// tokens is decoded each time, and the end of an incomplete character is held back.
//
// Owned by the code that generates one text; one thread. The tokenizer outlives it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {

class TextStream {
 public:
  // `before` are the tokens that the text goes on from, and no part of it; empty: it begins anew.
  // Special tokens have no text.
  TextStream(const Tokenizer& tokenizer, const std::vector<std::int32_t>& before);

  // The text that is complete now that `id` has come.
  std::string Add(std::int32_t id);
  // The incomplete rest, with U+FFFD in it. Call once.
  std::string Rest();

 private:
  std::string Decoded() const;
  void ForgetOldest();

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> window_;
  std::size_t shown_ = 0;  // bytes of the window's text that were returned, or stand before
};

}  // namespace muster
