#include "trainer/text/tokenizer/byte_tokens.h"

#include <charconv>

namespace muster {

std::string ByteTokenName(unsigned char byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

std::optional<unsigned char> ByteOfToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  std::string_view digits = token.substr(3, 2);
  // The reference implementation reads <0x+A> as a byte, too.
  if (digits.front() == '+') digits.remove_prefix(1);
  unsigned char byte = 0;
  const auto end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, byte, 16);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return byte;
}

}  // namespace muster
