#include "common/base/text.h"

namespace muster {

std::string CutText(std::string text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  // Bytes 10xxxxxx continue a character that began before them.
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;
  text.resize(max_bytes);
  return text;
}

}  // namespace muster
