// UTF-8 as the tokenizer needs it: decoding that never fails, and the classes of characters that
// splitting rules ask about.
//
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

struct Utf8Char {
  char32_t code_point = 0xfffd;
  // Bytes taken. For an invalid sequence its longest prefix that could have begun a valid one, at
  // least one byte: the same count of replacement characters as Rust and the web standards give.
  int length = 1;
  bool valid = false;
};

// The first character of a text that is not empty.
Utf8Char DecodeUtf8(std::string_view text);
// The last character of valid UTF-8 that is not empty.
Utf8Char LastUtf8(std::string_view text);

// The text with U+FFFD in place of every invalid sequence.
std::string ReplaceInvalidUtf8(std::string_view text);

void AppendUtf8(char32_t code_point, std::string* out);

// The text with `to` in place of every `from`, which is not empty, from left to right.
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// The normal form of valid UTF-8.
std::string NormalizeUtf8(std::string_view text, NormalForm form);

// Valid UTF-8 in lower case, character by character: whether a sigma ends its word does not count.
std::string LowerUtf8(std::string_view text);

bool IsUnicodeSpace(char32_t code_point);        // White_Space
bool IsUnicodeNumeric(char32_t code_point);      // Nd, Nl, No
bool IsUnicodePunctuation(char32_t code_point);  // P*, and ASCII's symbols
// What \w means to the reference implementation: Alphabetic, M, Nd, Pc, Join_Control.
bool IsUnicodeWord(char32_t code_point);

// Bytes of white space at the ends of valid UTF-8.
std::size_t SpacesAtBegin(std::string_view text);
std::size_t SpacesAtEnd(std::string_view text);

}  // namespace muster
