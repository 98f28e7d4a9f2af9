#include "trainer/text/chat/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>

#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/expression_parser.h"
#include "trainer/text/chat/jinja/token_stream.h"

namespace muster::jinja {
namespace {

using Kind = Statement::Kind;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(Tokenize(source)), expressions_(&tokens_) {}

  Program Run() {
    Program program;
    program.body = ParseBody({});
    program.has_generation = has_generation_;
    return program;
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  bool AtEnd(Ends ends) const {
    return tokens_.current().kind == TokenKind::kBlockBegin &&
           std::any_of(ends.begin(), ends.end(),
                       [this](std::string_view end) { return tokens_.next().IsName(end); });
  }

  // Up to the {% of one of the ends, whose name is the current token then.
  Body ParseBody(Ends ends) {
    const int line = tokens_.line();
    const Nesting nesting(&depth_, kMaxNesting, line);
    Body body;
    while (!AtEnd(ends)) {
      if (tokens_.current().kind == TokenKind::kEnd) {
        if (ends.size() == 0) return body;
        Fail("{% " + std::string(*ends.begin()) + " %} is missing", line);
      }
      body.push_back(std::make_unique<const Statement>(ParsePart()));
    }
    tokens_.Take();
    return body;
  }

  // A body with one end, which is passed.
  Body ParseWholeBody(std::string_view end) {
    EndBlock();
    Body body = ParseBody({end});
    tokens_.Take();
    EndBlock();
    return body;
  }

  void EndBlock() { tokens_.Expect(TokenKind::kBlockEnd, "'%}'"); }

  Statement ParsePart() {
    const Token& token = tokens_.Take();
    if (token.kind == TokenKind::kData) {
      Statement data = New(Kind::kData, token.line);
      data.text = Text(token.text);
      return data;
    }
    if (token.kind == TokenKind::kVariableBegin) {
      Statement print = New(Kind::kPrint, token.line);
      print.value = expressions_.ParseTuple();
      tokens_.Expect(TokenKind::kVariableEnd, "'}}'");
      return print;
    }
    return ParseTag();
  }

  Statement New(Kind kind, int line) const {
    Statement statement;
    statement.kind = kind;
    statement.line = line;
    return statement;
  }

  Statement ParseTag() {
    static constexpr struct {
      std::string_view name;
      Statement (Parser::*parse)(int line);
    } kTags[] = {
        {"for", &Parser::ParseFor},     {"if", &Parser::ParseIf},
        {"set", &Parser::ParseSet},     {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCall},   {"filter", &Parser::ParseFilterBlock},
        {"with", &Parser::ParseWith},   {"generation", &Parser::ParseGeneration},
        {"break", &Parser::ParseBreak}, {"continue", &Parser::ParseContinue},
    };
    const int line = tokens_.line();
    const std::string name = tokens_.ExpectName();
    for (const auto& tag : kTags)
      if (tag.name == name) return (this->*tag.parse)(line);
    Fail("the tag {% " + name + " %} is not supported here", line);
  }

  // A name, an attribute of a namespace where they may be set, or several with commas.
  Target ParseTarget(bool namespaces) {
    std::vector<Target> parts;
    bool several = false;
    while (true) {
      parts.push_back(ParseTargetPart(namespaces));
      if (!tokens_.TakeOperator(",")) break;
      several = true;
      if (tokens_.current().kind != TokenKind::kName && !tokens_.current().IsOperator("(")) break;
      if (tokens_.current().IsName("in")) break;
    }
    if (!several) return std::move(parts.front());
    return {.name = {}, .attribute = {}, .parts = std::move(parts)};
  }

  Target ParseTargetPart(bool namespaces) {
    const Nesting nesting(&depth_, kMaxNesting, tokens_.line());
    if (tokens_.TakeOperator("(")) {
      Target target = ParseTarget(namespaces);
      tokens_.ExpectOperator(")");
      return target;
    }
    const int line = tokens_.line();
    Target target{.name = tokens_.ExpectName(), .attribute = {}, .parts = {}};
    if (namespaces && tokens_.TakeOperator(".")) target.attribute = tokens_.ExpectName();
    for (const char* word : {"true", "false", "none", "True", "False", "None", "self"})
      if (target.name == word) Fail("nothing can be assigned to " + target.name, line);
    return target;
  }

  Statement ParseFor(int line) {
    Statement loop = New(Kind::kFor, line);
    loop.target = ParseTarget(false);
    if (!tokens_.TakeName("in")) tokens_.FailExpected("'in'");
    loop.value = expressions_.ParseTuple(false);
    if (tokens_.TakeName("if")) loop.condition = expressions_.Parse();
    if (tokens_.current().IsName("recursive"))
      Fail("recursive loops are not supported", tokens_.line());
    EndBlock();
    ++loops_;
    loop.body = ParseBody({"endfor", "else"});
    --loops_;
    if (tokens_.TakeName("else")) {
      EndBlock();
      loop.otherwise = ParseBody({"endfor"});
    }
    tokens_.Take();
    EndBlock();
    return loop;
  }

  Statement ParseIf(int line) {
    Statement statement = New(Kind::kIf, line);
    expressions_.EnterBranch();
    while (true) {
      ExpressionPtr condition = expressions_.ParseTuple(false);
      EndBlock();
      Body body = ParseBody({"endif", "elif", "else"});
      statement.branches.push_back({std::move(condition), std::move(body)});
      if (!tokens_.TakeName("elif")) break;
    }
    if (tokens_.TakeName("else")) {
      EndBlock();
      statement.branches.push_back({nullptr, ParseBody({"endif"})});
    }
    expressions_.LeaveBranch();
    tokens_.Take();
    EndBlock();
    return statement;
  }

  Statement ParseSet(int line) {
    Statement set = New(Kind::kSet, line);
    set.target = ParseTarget(true);
    if (tokens_.TakeOperator("=")) {
      set.value = expressions_.ParseTuple();
      EndBlock();
      return set;
    }
    set.kind = Kind::kSetBlock;
    if (tokens_.current().IsOperator("|")) set.value = expressions_.ParseFilters(nullptr, false);
    set.body = ParseApart("endset");
    return set;
  }

  // A body whose text goes elsewhere: no loop around it can be left from within.
  Body ParseApart(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = ParseWholeBody(end);
    loops_ = loops;
    return body;
  }

  Signature ParseSignature() {
    Signature signature;
    tokens_.ExpectOperator("(");
    while (!tokens_.current().IsOperator(")")) {
      if (!signature.names.empty()) tokens_.ExpectOperator(",");
      const int line = tokens_.line();
      signature.names.push_back(tokens_.ExpectName());
      if (tokens_.TakeOperator("=")) {
        signature.defaults.push_back(expressions_.Parse());
      } else if (!signature.defaults.empty()) {
        Fail("a parameter without a default follows one with a default", line);
      }
    }
    tokens_.ExpectOperator(")");
    return signature;
  }

  Statement ParseMacro(int line) {
    Statement macro = New(Kind::kMacro, line);
    macro.name = tokens_.ExpectName();
    macro.signature = ParseSignature();
    macro.body = ParseCalled("endmacro", &macro.signature);
    return macro;
  }

  // A body that takes the arguments which no parameter takes, where it uses their names.
  Body ParseCalled(std::string_view end, Signature* signature) {
    const ExpressionParser::Uses before = expressions_.uses();
    Body body = ParseApart(end);
    const ExpressionParser::Uses& after = expressions_.uses();
    const auto is_parameter = [signature](const char* name) {
      return std::ranges::find(signature->names, name) != signature->names.end();
    };
    signature->has_varargs = after.varargs != before.varargs && !is_parameter("varargs");
    signature->has_kwargs = after.kwargs != before.kwargs && !is_parameter("kwargs");
    return body;
  }

  Statement ParseCall(int line) {
    Statement call = New(Kind::kCallBlock, line);
    if (tokens_.current().IsOperator("(")) call.signature = ParseSignature();
    call.value = expressions_.Parse();
    if (call.value->kind != Expression::Kind::kCall) Fail("{% call %} needs a call", line);
    call.body = ParseCalled("endcall", &call.signature);
    return call;
  }

  Statement ParseFilterBlock(int line) {
    Statement block = New(Kind::kFilterBlock, line);
    block.value = expressions_.ParseFilters(nullptr, true);
    block.body = ParseApart("endfilter");
    return block;
  }

  Statement ParseWith(int line) {
    Statement with = New(Kind::kWith, line);
    while (tokens_.current().kind != TokenKind::kBlockEnd) {
      if (!with.assignments.empty()) tokens_.ExpectOperator(",");
      Target target = ParseTarget(false);
      tokens_.ExpectOperator("=");
      with.assignments.emplace_back(std::move(target), expressions_.Parse());
    }
    with.body = ParseWholeBody("endwith");
    return with;
  }

  Statement ParseGeneration(int line) {
    Statement generation = New(Kind::kGeneration, line);
    has_generation_ = true;
    generation.body = ParseApart("endgeneration");
    return generation;
  }

  Statement ParseBreak(int line) { return ParseJump(Kind::kBreak, line); }
  Statement ParseContinue(int line) { return ParseJump(Kind::kContinue, line); }

  Statement ParseJump(Kind kind, int line) {
    if (loops_ == 0) Fail("{% break %} and {% continue %} belong into a loop", line);
    EndBlock();
    return New(kind, line);
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;  // that {% break %} may leave
  bool has_generation_ = false;
};

}  // namespace

Program Parse(std::string_view source) { return Parser(source).Run(); }

}  // namespace muster::jinja
