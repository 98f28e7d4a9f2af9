// UTF-8 as the tokenizer needs it: decoding that never fails, and the classes of characters that
// splitting rules ask about.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace muster {

struct Utf8Char {
  char32_t code_point = 0xfffd;
  // Bytes taken. Of an invalid sequence its longest prefix that could have begun a valid one, at
  // least one byte: the same count of replacement characters as Rust and the web standards give.
  int length = 1;
  bool valid = false;
};

// The first character of a text that is not empty.
Utf8Char DecodeUtf8(std::string_view text);

// The text with U+FFFD in place of every invalid sequence.
std::string ReplaceInvalidUtf8(std::string_view text);

void AppendUtf8(char32_t code_point, std::string* out);

// Canonical composition (NFC) of valid UTF-8.
std::string ComposeUtf8(std::string_view text);

bool IsUnicodeSpace(char32_t code_point);    // White_Space
bool IsUnicodeNumeric(char32_t code_point);  // Nd, Nl, No
bool IsUnicodeWord(char32_t code_point);     // letters, marks, numbers, connectors

}  // namespace muster
