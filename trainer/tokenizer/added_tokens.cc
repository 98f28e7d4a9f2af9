#include "trainer/tokenizer/added_tokens.h"

#include <algorithm>

#include "trainer/tokenizer/utf8.h"

namespace muster {
namespace {

// The character that ends `text`, which is valid UTF-8 and not empty.
Utf8Char LastChar(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  return DecodeUtf8(text.substr(begin));
}

bool EndsWithWord(std::string_view text) {
  return !text.empty() && IsUnicodeWord(LastChar(text).code_point);
}

bool StartsWithWord(std::string_view text) {
  return !text.empty() && IsUnicodeWord(DecodeUtf8(text).code_point);
}

std::size_t SpacesBefore(std::string_view text) {
  std::size_t count = 0;
  while (count < text.size()) {
    const Utf8Char c = LastChar(text.substr(0, text.size() - count));
    if (!IsUnicodeSpace(c.code_point)) break;
    count += static_cast<std::size_t>(c.length);
  }
  return count;
}

std::size_t SpacesAfter(std::string_view text) {
  std::size_t count = 0;
  while (count < text.size()) {
    const Utf8Char c = DecodeUtf8(text.substr(count));
    if (!IsUnicodeSpace(c.code_point)) break;
    count += static_cast<std::size_t>(c.length);
  }
  return count;
}

}  // namespace

void AddedTokens::Add(AddedToken token) {
  if (token.content.empty()) return;
  auto& bucket = by_first_byte_[static_cast<unsigned char>(token.content.front())];
  const auto place = std::find_if(bucket.begin(), bucket.end(), [&](const AddedToken& other) {
    return other.content.size() < token.content.size();
  });
  bucket.insert(place, std::move(token));
}

const AddedToken* AddedTokens::LongestAt(std::string_view text, std::size_t position) const {
  for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(text[position])])
    if (text.substr(position).starts_with(token.content)) return &token;
  return nullptr;
}

void AddedTokens::Split(std::string_view text,
                        const std::function<void(std::string_view)>& text_piece,
                        const std::function<void(const AddedToken&)>& token) const {
  std::size_t piece_begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const AddedToken* found = LongestAt(text, i);
    if (found == nullptr) {
      ++i;
      continue;
    }
    std::size_t begin = i;
    std::size_t end = i + found->content.size();
    i = end;
    if (found->single_word &&
        (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end))))
      continue;
    // Spaces that the token before took along are gone.
    begin = std::max(begin, piece_begin);
    if (found->lstrip) begin -= SpacesBefore(text.substr(piece_begin, begin - piece_begin));
    if (found->rstrip) end += SpacesAfter(text.substr(end));
    if (begin > piece_begin) text_piece(text.substr(piece_begin, begin - piece_begin));
    token(*found);
    piece_begin = i = end;
  }
  if (piece_begin < text.size()) text_piece(text.substr(piece_begin));
}

}  // namespace muster
