#include "trainer/text/tokenizer/byte_alphabet.h"

#include <cstdint>

#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

// Bytes that are printable in Latin-1 stand for themselves; the others follow from U+0100 on.
bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr char32_t kFirstSubstitute = 0x100;
constexpr std::size_t kAlphabetEnd = kFirstSubstitute + 68;

std::array<char32_t, 256> CodePoints() {
  std::array<char32_t, 256> points{};
  char32_t next = kFirstSubstitute;
  for (int byte = 0; byte < 256; ++byte)
    points[static_cast<std::size_t>(byte)] =
        IsPrintable(byte) ? static_cast<char32_t>(byte) : next++;
  return points;
}

// Byte of each code point, or -1.
const std::array<std::int16_t, kAlphabetEnd>& Inverse() {
  static const auto table = [] {
    std::array<std::int16_t, kAlphabetEnd> inverse;
    inverse.fill(-1);
    const auto points = CodePoints();
    for (std::size_t byte = 0; byte < points.size(); ++byte)
      inverse[points[byte]] = static_cast<std::int16_t>(byte);
    return inverse;
  }();
  return table;
}

}  // namespace

const std::array<std::string, 256>& ByteAlphabet() {
  static const auto table = [] {
    std::array<std::string, 256> spellings;
    const auto points = CodePoints();
    for (std::size_t byte = 0; byte < points.size(); ++byte)
      AppendUtf8(points[byte], &spellings[byte]);
    return spellings;
  }();
  return table;
}

std::string SpellBytes(std::string_view bytes) {
  const auto& alphabet = ByteAlphabet();
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char byte : bytes) out += alphabet[static_cast<unsigned char>(byte)];
  return out;
}

std::string UnspellBytes(std::string_view token) {
  const auto& inverse = Inverse();
  std::string out;
  for (std::string_view rest = token; !rest.empty();) {
    const Utf8Char c = DecodeUtf8(rest);
    if (c.code_point >= inverse.size() || inverse[c.code_point] < 0) return std::string(token);
    out += static_cast<char>(inverse[c.code_point]);
    rest.remove_prefix(static_cast<std::size_t>(c.length));
  }
  return out;
}

}  // namespace muster
