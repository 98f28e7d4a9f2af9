#include "trainer/generation/text_stream.h"

#include <algorithm>
#include <string_view>

namespace muster {
namespace {

constexpr std::size_t kContext = 8;  // tokens that are enough to decode the next one right
constexpr std::size_t kWindow = 64;
constexpr std::size_t kMaxWindow = 256;  // no character takes so many
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Without the replacement characters at the end, which further bytes may turn into characters. Not
// only the last one: where bytes are tokens (Llama 2), one that is missing spoils all characters of
// their run.
std::size_t CompleteEnd(std::string_view text) {
  while (text.ends_with(kReplacement)) text.remove_suffix(kReplacement.size());
  return text.size();
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, const std::vector<std::int32_t>& before)
    : tokenizer_(tokenizer),
      window_(before.end() - static_cast<std::ptrdiff_t>(std::min(before.size(), kContext)),
              before.end()) {
  shown_ = Decoded().size();
}

std::string TextStream::Decoded() const {
  return tokenizer_.Decode(window_, {.skip_special_tokens = true});
}

std::string TextStream::Add(std::int32_t id) {
  window_.push_back(id);
  const std::string text = Decoded();
  const std::size_t end = window_.size() < kMaxWindow ? CompleteEnd(text) : text.size();
  std::string piece;
  if (end > shown_) {
    piece = text.substr(shown_, end - shown_);
    shown_ = end;
  }
  if (window_.size() >= kWindow && end == text.size()) ForgetOldest();
  return piece;
}

void TextStream::ForgetOldest() {
  window_.erase(window_.begin(), window_.end() - static_cast<std::ptrdiff_t>(kContext));
  shown_ = Decoded().size();
}

std::string TextStream::Rest() {
  const std::string text = Decoded();
  std::string rest = shown_ < text.size() ? text.substr(shown_) : std::string();
  shown_ = text.size();
  return rest;
}

}  // namespace muster
