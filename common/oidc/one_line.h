// Text of an issuer or of a token, made fit for a message. Pure; any thread.
#pragma once

#include <algorithm>
#include <string>

namespace muster {

// With '?' in place of control characters: on one line, and nothing that a terminal acts on.
inline std::string WithoutControls(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

}  // namespace muster
