// The syntax tree of a template. Built by the parser, read by the evaluator, never changed.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/text/chat/jinja/filters.h"
#include "trainer/text/chat/jinja/operators.h"
#include "trainer/text/chat/jinja/value.h"

namespace muster::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr list;  // *list, behind the positional ones; null: none
  ExpressionPtr dict;  // **dict, behind the named ones; null: none
};

struct Expression {
  enum class Kind {
    kConstant,   // value
    kName,       // name
    kList,       // operands
    kTuple,      // operands
    kDict,       // operands: key, value, key, value
    kAttribute,  // operands[0].name
    kItem,       // operands[0][operands[1]]
    kSlice,      // operands[0][operands[1]:operands[2]:operands[3]], where null: left out
    kCall,       // operands[0](arguments)
    kFilter,     // operands[0]|name(arguments); null in a filter block: its text
    kTest,       // operands[0] is name(arguments)
    kNegative,   // -operands[0]
    kPositive,
    kBinary,   // operands[0] binary operands[1]
    kConcat,   // operands joined by ~
    kCompare,  // operands[0] compares[0] operands[1] compares[1] operands[2]
    kAnd,
    kOr,
    kNot,
    kCondition,  // operands[0] if operands[1] else operands[2], which may be null
  };

  Kind kind;
  int line = 0;
  int depth = 1;  // levels of the tree from here
  std::string name = {};
  Value value = {};
  BinaryOp binary = BinaryOp::kAdd;
  Filter filter = nullptr;  // null: there is none of the name
  Test test = nullptr;      // the same
  std::vector<CompareOp> compares = {};
  std::vector<ExpressionPtr> operands = {};
  CallArguments arguments = {};
};

struct Statement;
using Body = std::vector<std::unique_ptr<const Statement>>;

// What a value is assigned to: a name, an attribute of a namespace, or several of them.
struct Target {
  std::string name;
  std::string attribute;      // empty: the name itself
  std::vector<Target> parts;  // not empty: the value is taken apart
};

struct Signature {
  std::vector<std::string> names;
  std::vector<ExpressionPtr> defaults;  // of the last names
  // The body uses these names, which then hold the arguments that no parameter takes.
  bool has_varargs = false;
  bool has_kwargs = false;
};

struct Branch {
  ExpressionPtr condition;  // null: else
  Body body;
};

struct Statement {
  enum class Kind {
    kData,         // text
    kPrint,        // value
    kFor,          // target in value if condition; body; otherwise
    kIf,           // branches
    kSet,          // target = value
    kSetBlock,     // target = body, through value: a chain of filters, or null
    kWith,         // assignments; body
    kMacro,        // name, signature, body
    kCallBlock,    // value: a call; signature, body of the caller
    kFilterBlock,  // value: a chain of filters; body
    kGeneration,   // body
    kBreak,
    kContinue,
  };

  Kind kind;
  int line = 0;
  Text text = {};
  std::string name = {};
  Target target = {};
  ExpressionPtr value = nullptr;
  ExpressionPtr condition = nullptr;
  Signature signature = {};
  std::vector<std::pair<Target, ExpressionPtr>> assignments = {};
  std::vector<Branch> branches = {};
  Body body = {};
  Body otherwise = {};
};

struct Program {
  Body body;
  bool has_generation = false;  // {% generation %} marks what is trained on
};

}  // namespace muster::jinja
