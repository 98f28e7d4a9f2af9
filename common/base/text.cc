#include "common/base/text.h"

namespace muster {
namespace {

struct Sequence {
  std::size_t bytes = 1;  // that belong together
  bool valid = false;
};

// At the beginning of `text`, which is not empty. Only the second byte's range depends on the
// first.
Sequence FirstSequence(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i};
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < low || byte > high) return {i};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

}  // namespace

std::string CutText(std::string text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  // Bytes 10xxxxxx continue a character that began before them.
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;
  text.resize(max_bytes);
  return text;
}

std::string ValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const Sequence next = FirstSequence(text);
    valid += next.valid ? text.substr(0, next.bytes) : std::string_view("\xEF\xBF\xBD");
    text.remove_prefix(next.bytes);
  }
  return valid;
}

}  // namespace muster
