// Evaluator: renders a syntax tree once.
//
// Private to this folder; template.h is the way to it. Made for one rendering and then thrown away,
// also when that fails. Throws Error with the line. Reaches no file, no network and no environment.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/text/chat/jinja/ast.h"
#include "trainer/text/chat/jinja/value.h"

namespace muster::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

class Evaluator {
 public:
  // All outlive the evaluator.
  Evaluator(const Program& program, const Variables& variables, Budget& budget)
      : program_(program), variables_(variables), budget_(budget) {}

  Text Run();

 private:
  // Of statements, expressions and macros within each other; well within a thread's stack.
  static constexpr int kMaxDepth = 500;

  // The names of a scope; what they do not hold is looked for in the scopes around.
  struct Scope {
    std::vector<std::pair<std::string, Value>> names;
    std::shared_ptr<const Scope> around;
  };
  enum class Flow { kNext, kBreak, kContinue };
  // What is called: a macro, or the body of a {% call %}. Holds its scope weakly, since the scope
  // holds the function.
  struct Callable {
    std::string name;
    const Signature* signature;
    const Body* body;
    std::weak_ptr<const Scope> scope;
  };

  // Statements; evaluator.cc.
  Flow Execute(const Body& body);
  Flow Execute(const Statement& statement);
  Flow ExecuteKind(const Statement& statement);
  Flow ExecuteFor(const Statement& loop);
  Flow ExecuteIf(const Statement& statement);
  Flow ExecuteWith(const Statement& with);
  void ExecuteSet(const Statement& set);
  void ExecuteCall(const Statement& call);
  std::vector<Value> Chosen(const Statement& loop);
  void Assign(const Target& target, const Value& value);
  void SetName(const std::string& name, Value value);
  // The text of a body in a scope of its own.
  Text Capture(const Body& body);
  Text Capture(const Body& body, std::shared_ptr<Scope> scope);
  Value Filtered(const Statement& block);
  std::shared_ptr<Scope> NewScope() const;
  Value MakeFunction(Callable callable);
  Value CallFunction(const Callable& callable, const Arguments& arguments);
  void BindParameters(const Callable& callable, const Arguments& arguments);
  void BindOthers(const Callable& callable, const Arguments& arguments);

  // Expressions; evaluate_expression.cc.
  Value Evaluate(const Expression& expression);
  Value EvaluateKind(const Expression& expression);
  Value Find(const std::string& name) const;
  Value EvaluateSequence(const Expression& expression);
  Value EvaluateDict(const Expression& expression);
  Value EvaluateSlice(const Expression& expression);
  Value EvaluateCall(const Expression& expression);
  Value EvaluateFilter(const Expression& expression);
  Value EvaluateTest(const Expression& expression);
  Value EvaluateConcat(const Expression& expression);
  Value EvaluateCompare(const Expression& expression);
  Value EvaluateCondition(const Expression& expression);
  Arguments EvaluateArguments(const CallArguments& arguments);
  void AddNamed(const Value& dict, Arguments* values);
  Value Call(const Value& callee, const Arguments& arguments);

  const Program& program_;
  const Variables& variables_;
  Budget& budget_;
  std::shared_ptr<Scope> scope_;
  Text* out_ = nullptr;
  Value filter_input_;  // what the first filter of a block's chain takes
  int depth_ = 0;
};

}  // namespace muster::jinja
