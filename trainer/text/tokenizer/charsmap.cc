#include "trainer/text/tokenizer/charsmap.h"

#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

std::uint32_t WordAt(std::string_view bytes, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i)
    word |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return word;
}

// A unit of a double array as Darts lays it out.
std::uint32_t LabelOf(std::uint32_t unit) { return unit & 0x800000ffu; }
bool HasLeaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t OffsetOf(std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }
std::uint32_t ValueOf(std::uint32_t unit) { return unit & 0x7fffffffu; }

}  // namespace

Result<Charsmap> Charsmap::Parse(std::string_view blob) {
  if (blob.size() < 4) return InvalidArgument("precompiled_charsmap ends within its size");
  const std::size_t trie_bytes = WordAt(blob, 0);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4)
    return InvalidArgument("precompiled_charsmap has a trie of " + std::to_string(trie_bytes) +
                           " bytes, but " + std::to_string(blob.size() - 4) + " follow");
  Charsmap map;
  for (std::size_t at = 4; at < 4 + trie_bytes; at += 4) map.units_.push_back(WordAt(blob, at));
  map.replacements_ = std::string(blob.substr(4 + trie_bytes));
  if (map.replacements_.empty() || map.replacements_.back() != '\0')
    return InvalidArgument("precompiled_charsmap has no end of its last replacement");
  // Such a replacement would keep blanks that SentencePiece takes away elsewhere.
  if (map.replacements_.find("  ") != std::string::npos)
    return Unimplemented("precompiled_charsmap replaces a character by two blanks");
  return map;
}

Charsmap::Match Charsmap::LongestAt(std::string_view text) const {
  Match match;
  std::uint32_t node = OffsetOf(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::uint32_t byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || LabelOf(units_[node]) != byte) break;
    const std::uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if (!HasLeaf(unit) || node >= units_.size()) continue;
    const std::size_t replacement = ValueOf(units_[node]);
    if (replacement < replacements_.size()) match = {i + 1, replacement};
  }
  return match;
}

std::string Charsmap::Run(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Match match = LongestAt(text);
    const std::size_t length =
        match.length > 0 ? match.length : static_cast<std::size_t>(DecodeUtf8(text).length);
    if (match.length > 0)
      out += replacements_.c_str() + match.replacement;
    else
      out += text.substr(0, length);
    text.remove_prefix(length);
  }
  return ReplaceInvalidUtf8(out);
}

}  // namespace muster
