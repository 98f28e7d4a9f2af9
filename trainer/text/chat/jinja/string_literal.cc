#include "trainer/text/chat/jinja/string_literal.h"

#include <algorithm>
#include <charconv>

#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/text.h"

namespace muster::jinja {
namespace {

// The character for a letter after a backslash; 0: it is no such letter.
char SimpleEscape(char letter) {
  switch (letter) {
    case '\\':
    case '\'':
    case '"': return letter;
    case 'a': return '\a';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'v': return '\v';
    default: return 0;
  }
}

// How many hexadecimal digits follow the letter; 0: it takes none.
std::size_t HexDigits(char letter) {
  return letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
}

class Reader {
 public:
  Reader(std::string_view literal, int line) : literal_(literal), line_(line) {}

  std::string Run() {
    while (at_ < literal_.size()) {
      if (literal_[at_] != '\\') {
        out_ += literal_[at_++];
      } else {
        ++at_;
        ReadEscape();
      }
    }
    return std::move(out_);
  }

 private:
  void ReadEscape() {
    const char letter = literal_[at_];  // a literal never ends in a single backslash
    if (letter == '\n') {
      ++at_;
    } else if (const char simple = SimpleEscape(letter); simple != 0) {
      out_ += simple;
      ++at_;
    } else if (letter >= '0' && letter <= '7') {
      std::size_t digits = 1;
      while (digits < 3 && at_ + digits < literal_.size() && literal_[at_ + digits] >= '0' &&
             literal_[at_ + digits] <= '7')
        ++digits;
      ReadCodePoint(digits, 8);
    } else if (const std::size_t digits = HexDigits(letter); digits > 0) {
      ++at_;
      ReadCodePoint(digits, 16);
    } else if (letter == 'N' || static_cast<unsigned char>(letter) >= 0x80) {
      Fail(std::string("the escape \\") + (letter == 'N' ? "N" : "before that character") +
               " is not supported in a string",
           line_);
    } else {
      out_ += '\\';
    }
  }

  void ReadCodePoint(std::size_t digits, int base) {
    unsigned code_point = 0;
    const char* begin = literal_.data() + at_;
    const char* end = begin + std::min(digits, literal_.size() - at_);
    const auto read = std::from_chars(begin, end, code_point, base);
    const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
    if (read.ec != std::errc() || read.ptr != begin + digits || code_point > 0x10FFFF || surrogate)
      Fail("a string has an escape that is no character", line_);
    AppendCodePoint(&out_, static_cast<std::int32_t>(code_point));
    at_ += digits;
  }

  const std::string_view literal_;
  const int line_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string Unescaped(std::string_view literal, int line) { return Reader(literal, line).Run(); }

}  // namespace muster::jinja
