// TokenStream: the tokens of a template, read from the front. Private to the parser.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/lexer.h"

namespace muster::jinja {

class TokenStream {
 public:
  // The last token is kEnd.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }

  // The current token, which is passed. The end is never passed.
  const Token& Take() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool TakeName(std::string_view name) {
    if (!current().IsName(name)) return false;
    Take();
    return true;
  }
  bool TakeOperator(std::string_view op) {
    if (!current().IsOperator(op)) return false;
    Take();
    return true;
  }
  void ExpectOperator(std::string_view op) {
    if (!TakeOperator(op)) FailExpected("'" + std::string(op) + "'");
  }
  std::string ExpectName() {
    if (current().kind != TokenKind::kName) FailExpected("a name");
    return Take().text;
  }
  void Expect(TokenKind kind, const char* what) {
    if (current().kind != kind) FailExpected(what);
    Take();
  }

  [[noreturn]] void FailExpected(const std::string& what) const {
    Fail("expected " + what + ", got " + Describe(current()), line());
  }

  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kData: return "text";
      case TokenKind::kBlockBegin: return "'{%'";
      case TokenKind::kBlockEnd: return "'%}'";
      case TokenKind::kVariableBegin: return "'{{'";
      case TokenKind::kVariableEnd: return "'}}'";
      case TokenKind::kString: return "a string";
      case TokenKind::kEnd: return "the end of the template";
      default: return "'" + token.text + "'";
    }
  }

 private:
  const std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

// Counts how deep a parser is nested, for as long as it lives.
class Nesting {
 public:
  Nesting(int* depth, int limit, int line) : depth_(depth) {
    if (*depth_ >= limit) Fail("the template nests too deeply", line);
    ++*depth_;
  }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  ~Nesting() { --*depth_; }

 private:
  int* const depth_;
};

}  // namespace muster::jinja
