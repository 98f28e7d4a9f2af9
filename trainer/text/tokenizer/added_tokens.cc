#include "trainer/text/tokenizer/added_tokens.h"

#include <algorithm>

#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

bool EndsWithWord(std::string_view text) {
  return !text.empty() && IsUnicodeWord(LastUtf8(text).code_point);
}

bool StartsWithWord(std::string_view text) {
  return !text.empty() && IsUnicodeWord(DecodeUtf8(text).code_point);
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
  std::size_t done = 0;  // everything before it is in a piece or a token
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
    // Spaces that the token before took along are gone, but may begin the next token all the same.
    if (found->lstrip) begin = std::max(begin - SpacesAtEnd(text.substr(0, begin)), done);
    if (found->rstrip) end += SpacesAtBegin(text.substr(end));
    if (begin > done) text_piece(text.substr(done, begin - done));
    token(*found);
    done = end;
  }
  if (done < text.size()) text_piece(text.substr(done));
}

}  // namespace muster
