#include "trainer/text/chat/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/parser.h"

namespace muster::jinja {
namespace {

using Kind = Expression::Kind;

// Long chains of operators nest as deep as they are long.
constexpr int kMaxExpressionDepth = 200;

Expression New(Kind kind, int line) {
  Expression expression;
  expression.kind = kind;
  expression.line = line;
  return expression;
}

ExpressionPtr Finish(Expression expression) {
  int inner = 0;
  const auto count = [&inner](const ExpressionPtr& part) {
    if (part != nullptr) inner = std::max(inner, part->depth);
  };
  for (const auto& operand : expression.operands) count(operand);
  for (const auto& argument : expression.arguments.positional) count(argument);
  for (const auto& [name, argument] : expression.arguments.named) count(argument);
  count(expression.arguments.list);
  count(expression.arguments.dict);
  expression.depth = inner + 1;
  if (expression.depth > kMaxExpressionDepth)
    Fail("an expression nests too deeply", expression.line);
  return std::make_unique<const Expression>(std::move(expression));
}

template <typename... Operands>
ExpressionPtr Make(Kind kind, int line, Operands... operands) {
  Expression expression = New(kind, line);
  (expression.operands.push_back(std::move(operands)), ...);
  return Finish(std::move(expression));
}

ExpressionPtr Constant(Value value, int line) {
  Expression expression = New(Kind::kConstant, line);
  expression.value = std::move(value);
  return Finish(std::move(expression));
}

ExpressionPtr Binary(BinaryOp op, ExpressionPtr left, ExpressionPtr right, int line) {
  Expression expression = New(Kind::kBinary, line);
  expression.binary = op;
  expression.operands.push_back(std::move(left));
  expression.operands.push_back(std::move(right));
  return Finish(std::move(expression));
}

struct NamedCompare {
  std::string_view text;
  CompareOp op;
};
constexpr std::array<NamedCompare, 6> kCompares = {{
    {"==", CompareOp::kEqual},
    {"!=", CompareOp::kNotEqual},
    {"<", CompareOp::kLess},
    {"<=", CompareOp::kLessEqual},
    {">", CompareOp::kGreater},
    {">=", CompareOp::kGreaterEqual},
}};

std::optional<CompareOp> TakeCompare(TokenStream& tokens) {
  for (const NamedCompare& each : kCompares)
    if (tokens.TakeOperator(each.text)) return each.op;
  if (tokens.TakeName("in")) return CompareOp::kIn;
  if (tokens.current().IsName("not") && tokens.next().IsName("in")) {
    tokens.Take();
    tokens.Take();
    return CompareOp::kNotIn;
  }
  return std::nullopt;
}

}  // namespace

ExpressionPtr ExpressionParser::Parse(bool condition) {
  const Nesting nesting(&depth_, kMaxNesting, tokens_.line());
  return condition ? Condition() : Or();
}

bool ExpressionParser::AtTupleEnd() const {
  const Token& token = tokens_.current();
  return token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd ||
         token.IsOperator(")");
}

ExpressionPtr ExpressionParser::ParseTuple(bool condition) {
  const int line = tokens_.line();
  Expression tuple = New(Kind::kTuple, line);
  ExpressionPtr first = Parse(condition);
  if (!tokens_.current().IsOperator(",")) return first;
  tuple.operands.push_back(std::move(first));
  while (tokens_.TakeOperator(",")) {
    if (AtTupleEnd() || tokens_.current().IsName("recursive")) break;
    tuple.operands.push_back(Parse(condition));
  }
  return Finish(std::move(tuple));
}

ExpressionPtr ExpressionParser::Condition() {
  int line = tokens_.line();
  ExpressionPtr value = Or();
  while (tokens_.TakeName("if")) {
    ExpressionPtr condition = Or();
    ExpressionPtr otherwise = tokens_.TakeName("else") ? Parse() : nullptr;
    value =
        Make(Kind::kCondition, line, std::move(value), std::move(condition), std::move(otherwise));
    line = tokens_.line();
  }
  return value;
}

ExpressionPtr ExpressionParser::Or() {
  ExpressionPtr left = And();
  while (tokens_.current().IsName("or")) {
    const int line = tokens_.Take().line;
    left = Make(Kind::kOr, line, std::move(left), And());
  }
  return left;
}

ExpressionPtr ExpressionParser::And() {
  ExpressionPtr left = Not();
  while (tokens_.current().IsName("and")) {
    const int line = tokens_.Take().line;
    left = Make(Kind::kAnd, line, std::move(left), Not());
  }
  return left;
}

ExpressionPtr ExpressionParser::Not() {
  if (!tokens_.current().IsName("not")) return Comparison();
  const Nesting nesting(&depth_, kMaxNesting, tokens_.line());
  const int line = tokens_.Take().line;
  return Make(Kind::kNot, line, Not());
}

ExpressionPtr ExpressionParser::Comparison() {
  Expression expression = New(Kind::kCompare, tokens_.line());
  expression.operands.push_back(Sum());
  while (const auto op = TakeCompare(tokens_)) {
    expression.compares.push_back(*op);
    expression.operands.push_back(Sum());
  }
  if (expression.compares.empty()) return std::move(expression.operands.front());
  return Finish(std::move(expression));
}

ExpressionPtr ExpressionParser::Sum() {
  ExpressionPtr left = Concat();
  while (tokens_.current().IsOperator("+") || tokens_.current().IsOperator("-")) {
    const Token& op = tokens_.Take();
    const BinaryOp binary = op.text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
    const int line = op.line;
    left = Binary(binary, std::move(left), Concat(), line);
  }
  return left;
}

ExpressionPtr ExpressionParser::Concat() {
  Expression expression = New(Kind::kConcat, tokens_.line());
  expression.operands.push_back(Product());
  while (tokens_.TakeOperator("~")) expression.operands.push_back(Product());
  if (expression.operands.size() == 1) return std::move(expression.operands.front());
  return Finish(std::move(expression));
}

ExpressionPtr ExpressionParser::Product() {
  static constexpr std::pair<std::string_view, BinaryOp> kOps[] = {{"*", BinaryOp::kMultiply},
                                                                   {"/", BinaryOp::kDivide},
                                                                   {"//", BinaryOp::kFloorDivide},
                                                                   {"%", BinaryOp::kModulo}};
  ExpressionPtr left = Power();
  while (true) {
    const auto* op = std::find_if(std::begin(kOps), std::end(kOps), [this](const auto& each) {
      return tokens_.current().IsOperator(each.first);
    });
    if (op == std::end(kOps)) return left;
    const int line = tokens_.Take().line;
    left = Binary(op->second, std::move(left), Power(), line);
  }
}

ExpressionPtr ExpressionParser::Power() {
  ExpressionPtr left = Unary();
  while (tokens_.current().IsOperator("**")) {
    const int line = tokens_.Take().line;
    left = Binary(BinaryOp::kPower, std::move(left), Unary(), line);
  }
  return left;
}

ExpressionPtr ExpressionParser::Unary(bool with_filters) {
  const Nesting nesting(&depth_, kMaxNesting, tokens_.line());
  const int line = tokens_.line();
  ExpressionPtr expression;
  if (tokens_.TakeOperator("-")) {
    expression = Make(Kind::kNegative, line, Unary(false));
  } else if (tokens_.TakeOperator("+")) {
    expression = Make(Kind::kPositive, line, Unary(false));
  } else {
    expression = Primary();
  }
  expression = Postfix(std::move(expression));
  return with_filters ? FiltersAndTests(std::move(expression)) : std::move(expression);
}

ExpressionPtr ExpressionParser::Primary() {
  const Token& token = tokens_.current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::kName: return Name();
    case TokenKind::kInteger: return Constant(tokens_.Take().integer, line);
    case TokenKind::kFloat: return Constant(tokens_.Take().number, line);
    case TokenKind::kString: {
      std::string text;
      while (tokens_.current().kind == TokenKind::kString) text += tokens_.Take().text;
      return Constant(std::move(text), line);
    }
    default: break;
  }
  if (token.IsOperator("(")) return Parenthesized();
  if (token.IsOperator("[")) return ListLiteral();
  if (token.IsOperator("{")) return DictLiteral();
  Fail("unexpected " + TokenStream::Describe(token), line);
}

ExpressionPtr ExpressionParser::Name() {
  const Token& token = tokens_.Take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return Constant(true, token.line);
  if (name == "false" || name == "False") return Constant(false, token.line);
  if (name == "none" || name == "None") return Constant(None{}, token.line);
  if (name == "self") Fail("'self' is not supported", token.line);
  if (name == "varargs") ++uses_.varargs;
  if (name == "kwargs") ++uses_.kwargs;
  Expression expression = New(Kind::kName, token.line);
  expression.name = name;
  return Finish(std::move(expression));
}

ExpressionPtr ExpressionParser::Parenthesized() {
  const int line = tokens_.Take().line;
  if (tokens_.TakeOperator(")")) return Make(Kind::kTuple, line);
  ExpressionPtr expression = ParseTuple();
  tokens_.ExpectOperator(")");
  return expression;
}

ExpressionPtr ExpressionParser::ListLiteral() {
  Expression list = New(Kind::kList, tokens_.Take().line);
  while (!tokens_.current().IsOperator("]")) {
    if (!list.operands.empty()) tokens_.ExpectOperator(",");
    if (tokens_.current().IsOperator("]")) break;
    list.operands.push_back(Parse());
  }
  tokens_.ExpectOperator("]");
  return Finish(std::move(list));
}

ExpressionPtr ExpressionParser::DictLiteral() {
  Expression dict = New(Kind::kDict, tokens_.Take().line);
  while (!tokens_.current().IsOperator("}")) {
    if (!dict.operands.empty()) tokens_.ExpectOperator(",");
    if (tokens_.current().IsOperator("}")) break;
    dict.operands.push_back(Parse());
    tokens_.ExpectOperator(":");
    dict.operands.push_back(Parse());
  }
  tokens_.ExpectOperator("}");
  return Finish(std::move(dict));
}

ExpressionPtr ExpressionParser::Postfix(ExpressionPtr expression) {
  while (true) {
    const Token& token = tokens_.current();
    if (token.IsOperator(".")) {
      expression = Member(std::move(expression));
    } else if (token.IsOperator("[")) {
      expression = Subscript(std::move(expression));
    } else if (token.IsOperator("(")) {
      expression = Call(std::move(expression));
    } else {
      return expression;
    }
  }
}

ExpressionPtr ExpressionParser::FiltersAndTests(ExpressionPtr expression) {
  while (true) {
    const Token& token = tokens_.current();
    if (token.IsOperator("|")) {
      expression = ParseFilters(std::move(expression), false);
    } else if (token.IsName("is")) {
      expression = TestOf(std::move(expression));
    } else if (token.IsOperator("(")) {
      expression = Call(std::move(expression));
    } else {
      return expression;
    }
  }
}

ExpressionPtr ExpressionParser::Member(ExpressionPtr object) {
  const int line = tokens_.Take().line;
  const Token& token = tokens_.Take();
  if (token.kind == TokenKind::kInteger)
    return Make(Kind::kItem, line, std::move(object), Constant(token.integer, line));
  if (token.kind != TokenKind::kName) Fail("expected a name or an index after '.'", token.line);
  Expression member = New(Kind::kAttribute, line);
  member.name = token.text;
  member.operands.push_back(std::move(object));
  return Finish(std::move(member));
}

ExpressionPtr ExpressionParser::Subscript(ExpressionPtr object) {
  const int line = tokens_.Take().line;
  const auto at_end = [this] {
    return tokens_.current().IsOperator("]") || tokens_.current().IsOperator(":");
  };
  if (tokens_.current().IsOperator("]")) Fail("a subscript is empty", line);
  ExpressionPtr first = at_end() ? nullptr : Parse();
  if (tokens_.TakeOperator("]"))
    return Make(Kind::kItem, line, std::move(object), std::move(first));
  tokens_.ExpectOperator(":");
  ExpressionPtr stop = at_end() ? nullptr : Parse();
  ExpressionPtr step;
  if (tokens_.TakeOperator(":") && !at_end()) step = Parse();
  tokens_.ExpectOperator("]");
  return Make(Kind::kSlice, line, std::move(object), std::move(first), std::move(stop),
              std::move(step));
}

ExpressionPtr ExpressionParser::Call(ExpressionPtr function) {
  Expression call = New(Kind::kCall, tokens_.line());
  call.operands.push_back(std::move(function));
  call.arguments = Arguments();
  return Finish(std::move(call));
}

CallArguments ExpressionParser::Arguments() {
  CallArguments arguments;
  tokens_.ExpectOperator("(");
  bool first = true;
  while (!tokens_.current().IsOperator(")")) {
    if (!first) tokens_.ExpectOperator(",");
    if (tokens_.current().IsOperator(")")) break;
    Argument(&arguments);
    first = false;
  }
  tokens_.ExpectOperator(")");
  return arguments;
}

void ExpressionParser::Argument(CallArguments* arguments) {
  const Token& token = tokens_.current();
  const bool unpacks = arguments->list != nullptr || arguments->dict != nullptr;
  if (token.IsOperator("*") || token.IsOperator("**")) {
    ExpressionPtr& place = token.IsOperator("*") ? arguments->list : arguments->dict;
    if (place != nullptr || arguments->dict != nullptr)
      Fail("an argument with " + token.text + " is not expected here", token.line);
    tokens_.Take();
    place = Parse();
    return;
  }
  if (token.kind == TokenKind::kName && tokens_.next().IsOperator("=")) {
    if (arguments->dict != nullptr) Fail("a named argument follows one with **", token.line);
    std::string name = tokens_.Take().text;
    tokens_.Take();
    for (const auto& [known, value] : arguments->named)
      if (known == name) Fail("the argument '" + name + "' is given twice", token.line);
    arguments->named.emplace_back(std::move(name), Parse());
    return;
  }
  if (!arguments->named.empty() || unpacks)
    Fail("an argument without a name follows a named one or one with *", token.line);
  arguments->positional.push_back(Parse());
}

ExpressionPtr ExpressionParser::ParseFilters(ExpressionPtr input, bool inline_first) {
  while (inline_first || tokens_.TakeOperator("|")) {
    inline_first = false;
    Expression filter = New(Kind::kFilter, tokens_.line());
    filter.name = tokens_.ExpectName();
    filter.filter = FindFilter(filter.name);
    if (filter.filter == nullptr && branches_ == 0)
      Fail("the filter '" + filter.name + "' is not supported", filter.line);
    filter.operands.push_back(std::move(input));
    if (tokens_.current().IsOperator("(")) filter.arguments = Arguments();
    input = Finish(std::move(filter));
  }
  return input;
}

ExpressionPtr ExpressionParser::TestOf(ExpressionPtr input) {
  Expression test = New(Kind::kTest, tokens_.Take().line);
  const bool negated = tokens_.TakeName("not");
  test.name = tokens_.ExpectName();
  test.test = FindTest(test.name);
  if (test.test == nullptr && branches_ == 0)
    Fail("the test '" + test.name + "' is not supported", test.line);
  test.operands.push_back(std::move(input));
  const Token& token = tokens_.current();
  const bool starts_operand =
      token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
      token.kind == TokenKind::kFloat || token.IsOperator("[") || token.IsOperator("{") ||
      (token.kind == TokenKind::kName && !token.IsName("else") && !token.IsName("or") &&
       !token.IsName("and"));
  if (token.IsOperator("(")) {
    test.arguments = Arguments();
  } else if (starts_operand) {
    if (token.IsName("is")) Fail("tests cannot be chained with is", token.line);
    const Nesting nesting(&depth_, kMaxNesting, token.line);
    test.arguments.positional.push_back(Postfix(Primary()));
  }
  const int line = test.line;
  ExpressionPtr finished = Finish(std::move(test));
  return negated ? Make(Kind::kNot, line, std::move(finished)) : std::move(finished);
}

}  // namespace muster::jinja
