// The lexer: a template's source as tokens, with Jinja2's control of white space under trim_blocks
// and lstrip_blocks, which transformers turns on.
//
// Pure function; any thread. Throws Error with the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::jinja {

enum class TokenKind {
  kData,           // text between the tags, as it goes out
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,  // of the template; the last token
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of data, names, operators; strings without quotes and escapes
  int line = 1;
  std::int64_t integer = 0;
  double number = 0;

  bool IsName(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool IsOperator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
};

// `source` is valid UTF-8.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace muster::jinja
