// ExpressionParser: expressions, with Jinja2's grammar and precedence. Private to the parser.
#pragma once

#include <string>

#include "trainer/text/chat/jinja/ast.h"
#include "trainer/text/chat/jinja/token_stream.h"

namespace muster::jinja {

class ExpressionParser {
 public:
  // `tokens` outlives the parser and is shared with who parses the statements around.
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}

  // An expression; with `a if b else c` unless `condition` is false.
  ExpressionPtr Parse(bool condition = true);
  // The same, or a tuple without parentheses.
  ExpressionPtr ParseTuple(bool condition = true);
  // name(...)|name(...) onto `input`, the first without a bar where `inline_first`.
  ExpressionPtr ParseFilters(ExpressionPtr input, bool inline_first);

  // Within {% if %} a filter or test that is missing is an error only once it is used, as in
  // Jinja2: templates ask first whether it is there. Calls nest.
  void EnterBranch() { ++branches_; }
  void LeaveBranch() { --branches_; }

  // How often the names that hold a macro's other arguments were used so far.
  struct Uses {
    int varargs = 0;
    int kwargs = 0;
  };
  const Uses& uses() const { return uses_; }

 private:
  using Kind = Expression::Kind;

  ExpressionPtr Condition();
  ExpressionPtr Or();
  ExpressionPtr And();
  ExpressionPtr Not();
  ExpressionPtr Comparison();
  ExpressionPtr Sum();
  ExpressionPtr Concat();
  ExpressionPtr Product();
  ExpressionPtr Power();
  ExpressionPtr Unary(bool with_filters = true);
  ExpressionPtr Primary();
  ExpressionPtr Name();
  ExpressionPtr Parenthesized();
  ExpressionPtr ListLiteral();
  ExpressionPtr DictLiteral();
  ExpressionPtr Postfix(ExpressionPtr expression);
  ExpressionPtr FiltersAndTests(ExpressionPtr expression);
  ExpressionPtr Member(ExpressionPtr object);
  ExpressionPtr Subscript(ExpressionPtr object);
  ExpressionPtr Call(ExpressionPtr function);
  ExpressionPtr TestOf(ExpressionPtr input);
  CallArguments Arguments();
  void Argument(CallArguments* arguments);
  bool AtTupleEnd() const;

  TokenStream& tokens_;
  int depth_ = 0;
  int branches_ = 0;
  Uses uses_;
};

}  // namespace muster::jinja
