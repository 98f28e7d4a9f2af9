#include "trainer/text/tokenizer/character_pairs.h"

#include <optional>

#include "trainer/text/tokenizer/utf8.h"

namespace muster {

void CharacterPairs::Add(std::string_view token) {
  std::optional<char32_t> left;
  while (!token.empty()) {
    const Utf8Char right = DecodeUtf8(token);
    if (left) bits_->set(Slot(*left, right.code_point));
    left = right.code_point;
    token.remove_prefix(static_cast<std::size_t>(right.length));
  }
}

}  // namespace muster
