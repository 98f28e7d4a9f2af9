#include "trainer/text/chat/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/string_literal.h"
#include "trainer/text/chat/jinja/text.h"

namespace muster::jinja {
namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool IsDigitByte(char c) { return c >= '0' && c <= '9'; }
bool IsNameByte(char c) {
  return IsDigitByte(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// All line breaks as \n, and without the one at the end.
std::string NormalizedSource(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) LexData();
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  char Peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  bool StartsWith(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }

  void Add(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_});
  }

  void Advance(std::size_t count) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + count),
                                         '\n'));
    at_ += count;
  }

  // The offset after the white space at `offset`.
  std::size_t AfterSpace(std::size_t offset) const {
    return offset + Stripped(std::string_view(source_).substr(offset), {.right = false}).begin;
  }

  void SkipSpace() { Advance(AfterSpace(at_) - at_); }

  // The next tag's two characters at or after `from`.
  std::size_t FindTag(std::size_t from) const {
    for (std::size_t i = source_.find('{', from); i != std::string::npos;
         i = source_.find('{', i + 1)) {
      if (i + 1 < source_.size() &&
          (source_[i + 1] == '%' || source_[i + 1] == '{' || source_[i + 1] == '#'))
        return i;
    }
    return std::string::npos;
  }

  // What the tag that begins at `end` leaves of the text before it. sign: what follows its {%.
  std::string_view BeforeTag(std::size_t end, char sign, bool is_block) const {
    const auto text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') return text.substr(0, Stripped(text, {.left = false}).end);
    if (sign == '+' || !is_block) return text;
    const std::size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
    const bool at_line_begin = line_begin > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    const auto rest = text.substr(line_begin);
    const bool blank = Stripped(rest, {.right = false}).begin == rest.size();
    return at_line_begin && blank ? text.substr(0, line_begin) : text;
  }

  void AddData(std::string_view text) {
    if (!text.empty()) Add(TokenKind::kData, std::string(text));
  }

  void LexData() {
    const std::size_t tag = FindTag(at_);
    if (tag == std::string::npos) {
      AddData(std::string_view(source_).substr(at_));
      Advance(source_.size() - at_);
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    AddData(BeforeTag(tag, sign, kind != '{'));
    Advance(tag - at_);
    const auto raw = kind == '%' ? RawTag(at_, "raw", true) : std::nullopt;
    if (raw) {
      LexRaw(*raw);
      return;
    }
    Advance(sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') {
      LexComment();
    } else if (kind == '%') {
      LexTag(TokenKind::kBlockBegin);
    } else {
      LexTag(TokenKind::kVariableBegin);
    }
  }

  // The offset after {% name %} at `offset`; none: it is another tag. After a begin no line break
  // is taken away.
  std::optional<std::size_t> RawTag(std::size_t offset, std::string_view name, bool begins) const {
    const std::string_view source = source_;
    std::size_t i = offset + 2;
    if (i < source.size() && (source[i] == '-' || source[i] == '+')) ++i;
    i = AfterSpace(i);
    if (!source.substr(i).starts_with(name)) return std::nullopt;
    i = AfterSpace(i + name.size());
    if (source.substr(i).starts_with("-%}")) return AfterSpace(i + 3);
    if (!begins && source.substr(i).starts_with("+%}")) return i + 3;
    if (!source.substr(i).starts_with("%}")) return std::nullopt;
    i += 2;
    return !begins && i < source.size() && source[i] == '\n' ? i + 1 : i;
  }

  void LexRaw(std::size_t body) {
    const int line = line_;
    Advance(body - at_);
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const auto end = RawTag(tag, "endraw", false);
      if (!end) continue;
      AddData(BeforeTag(tag, tag + 2 < source_.size() ? source_[tag + 2] : '\0', true));
      Advance(*end - at_);
      return;
    }
    Fail("{% raw %} has no {% endraw %}", line);
  }

  void LexComment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) Fail("a comment has no end", line_);
    const char sign = end > at_ ? source_[end - 1] : '\0';
    std::size_t after = end + 2;
    if (sign == '-') {
      after = AfterSpace(after);
    } else if (sign != '+' && after < source_.size() && source_[after] == '\n') {
      ++after;
    }
    Advance(after - at_);
  }

  // Whether the tag ends here; consumes its end.
  bool TakeEnd(bool is_block) {
    const std::string_view close = is_block ? "%}" : "}}";
    if (Peek() == '-' && std::string_view(source_).substr(at_ + 1).starts_with(close)) {
      Advance(AfterSpace(at_ + 3) - at_);
      return true;
    }
    if (is_block && StartsWith("+%}")) {
      Advance(3);
      return true;
    }
    if (!StartsWith(close)) return false;
    Advance(is_block && Peek(2) == '\n' ? 3 : 2);
    return true;
  }

  void LexTag(TokenKind kind) {
    const bool is_block = kind == TokenKind::kBlockBegin;
    const int line = line_;
    Add(kind, "");
    open_.clear();
    while (true) {
      if (at_ >= source_.size()) Fail(is_block ? "a {% has no %}" : "a {{ has no }}", line);
      const int end_line = line_;
      if (open_.empty() && TakeEnd(is_block)) {
        Add(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
        tokens_.back().line = end_line;
        return;
      }
      LexExpressionToken();
    }
  }

  void LexExpressionToken() {
    if (AfterSpace(at_) > at_) {
      SkipSpace();
    } else if (IsDigitByte(Peek())) {
      LexNumber();
    } else if (IsNameByte(Peek())) {
      const std::size_t begin = at_;
      while (IsNameByte(Peek())) ++at_;
      Add(TokenKind::kName, source_.substr(begin, at_ - begin));
    } else if (Peek() == '"' || Peek() == '\'') {
      LexString();
    } else {
      LexOperator();
    }
  }

  // The digits at `offset`, with single underscores between them.
  std::size_t AfterDigits(std::size_t offset) const {
    while (offset < source_.size() &&
           (IsDigitByte(source_[offset]) ||
            (source_[offset] == '_' && IsDigitByte(source_[offset - 1]) &&
             offset + 1 < source_.size() && IsDigitByte(source_[offset + 1]))))
      ++offset;
    return offset;
  }

  void LexNumber() {
    const auto digit_at = [&](std::size_t i) {
      return i < source_.size() && IsDigitByte(source_[i]);
    };
    const auto letter_at = [&](std::size_t i, char letter) {
      return i < source_.size() && (source_[i] | 0x20) == letter;
    };
    std::size_t end = AfterDigits(at_);
    bool is_float = false;
    // In list.0.1 the second number is an index too.
    if (at_ == 0 || source_[at_ - 1] != '.') {
      if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
        is_float = true;
        end = AfterDigits(end + 1);
      }
      std::size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '-' || source_[exponent] == '+'))
        ++exponent;
      if (letter_at(end, 'e') && digit_at(exponent)) {
        is_float = true;
        end = AfterDigits(exponent);
      }
    }
    if (source_[at_] == '0' && !is_float) {
      if (letter_at(at_ + 1, 'x') || letter_at(at_ + 1, 'o') || letter_at(at_ + 1, 'b'))
        Fail("integers other than decimal ones are not supported", line_);
      if (end > at_ + 1) Fail("an integer begins with 0", line_);
    }
    std::string digits = source_.substr(at_, end - at_);
    std::erase(digits, '_');
    Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, digits);
    ReadNumber(digits, &tokens_.back());
    at_ = end;
  }

  void ReadNumber(const std::string& digits, Token* token) const {
    const char* end = digits.data() + digits.size();
    if (token->kind == TokenKind::kFloat) {
      const auto read = std::from_chars(digits.data(), end, token->number);
      if (read.ec != std::errc()) Fail("the number " + digits + " cannot be kept", line_);
      return;
    }
    const auto read = std::from_chars(digits.data(), end, token->integer);
    if (read.ec != std::errc()) Fail("the integer " + digits + " does not fit into 64 bits", line_);
  }

  void LexString() {
    const char quote = Peek();
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) Fail("a string has no end", line_);
    Add(TokenKind::kString, Unescaped(source_.substr(at_ + 1, end - at_ - 1), line_));
    Advance(end + 1 - at_);
  }

  void LexOperator() {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [this](std::string_view op) { return StartsWith(op); });
    if (found == std::end(kOperators)) {
      const std::size_t next = NextOffset(source_, at_);
      Fail("unexpected character '" + source_.substr(at_, next - at_) + "'", line_);
    }
    const char op = (*found)[0];
    if (op == '(' || op == '[' || op == '{') {
      open_ += op == '(' ? ')' : op == '[' ? ']' : '}';
    } else if (op == ')' || op == ']' || op == '}') {
      if (open_.empty()) Fail(std::string("unexpected '") + op + "'", line_);
      if (open_.back() != op)
        Fail(std::string("unexpected '") + op + "', expected '" + open_.back() + "'", line_);
      open_.pop_back();
    }
    Add(TokenKind::kOperator, std::string(*found));
    at_ += found->size();
  }

  const std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::string open_;  // the closing brackets that are due, innermost last
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  return Lexer(NormalizedSource(source)).Run();
}

}  // namespace muster::jinja
