// Expressions: what they evaluate to (evaluator.h).
#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/evaluator.h"
#include "trainer/text/chat/jinja/globals.h"
#include "trainer/text/chat/jinja/operators.h"
#include "trainer/text/chat/jinja/token_stream.h"

namespace muster::jinja {
Value Evaluator::Evaluate(const Expression& expression) {
  const Nesting nesting(&depth_, kMaxDepth, expression.line);
  try {
    budget_.Spend(1);
    return EvaluateKind(expression);
  } catch (Error& error) {
    error.AddLine(expression.line);
    throw;
  }
}

Value Evaluator::EvaluateKind(const Expression& expression) {
  using Kind = Expression::Kind;
  const auto operand = [&](std::size_t i) { return Evaluate(*expression.operands[i]); };
  switch (expression.kind) {
    case Kind::kConstant: return expression.value;
    case Kind::kName: return Find(expression.name);
    case Kind::kList:
    case Kind::kTuple: return EvaluateSequence(expression);
    case Kind::kDict: return EvaluateDict(expression);
    case Kind::kAttribute: return Attribute(operand(0), expression.name);
    case Kind::kItem: {
      const Value object = operand(0);
      return Item(object, operand(1));
    }
    case Kind::kSlice: return EvaluateSlice(expression);
    case Kind::kCall: return EvaluateCall(expression);
    case Kind::kFilter: return EvaluateFilter(expression);
    case Kind::kTest: return EvaluateTest(expression);
    case Kind::kNegative: return Negate(operand(0));
    case Kind::kPositive: return Negate(Negate(operand(0)));
    case Kind::kBinary: {
      const Value left = operand(0);
      return Apply(expression.binary, left, operand(1), budget_);
    }
    case Kind::kConcat: return EvaluateConcat(expression);
    case Kind::kCompare: return EvaluateCompare(expression);
    case Kind::kAnd: {
      Value left = operand(0);
      return left.IsTrue() ? operand(1) : left;
    }
    case Kind::kOr: {
      Value left = operand(0);
      return left.IsTrue() ? left : operand(1);
    }
    case Kind::kNot: return !operand(0).IsTrue();
    case Kind::kCondition: return EvaluateCondition(expression);
  }
  return Value();
}

Value Evaluator::Find(const std::string& name) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->around.get())
    for (const auto& [known, value] : scope->names)
      if (known == name) return value;
  for (const auto& [known, value] : variables_)
    if (known == name) return value;
  if (const Value* global = FindGlobal(name, budget_)) return *global;
  if (name == "strftime_now")
    return Value::MakeUndefined(
        "strftime_now is not there: rows that are trained on must not depend on the day; give the "
        "day that the template is to write in data.chat_date (score --chat-date), such as "
        "2026-01-31");
  return Value::MakeUndefined("'" + name + "' is undefined");
}

Value Evaluator::EvaluateSequence(const Expression& expression) {
  std::vector<Value> items;
  items.reserve(expression.operands.size());
  for (const auto& operand : expression.operands) items.push_back(Evaluate(*operand));
  const bool tuple = expression.kind == Expression::Kind::kTuple;
  return Value::MakeList(std::move(items), tuple ? ListKind::kTuple : ListKind::kList);
}

Value Evaluator::EvaluateDict(const Expression& expression) {
  std::vector<std::pair<Value, Value>> entries;
  for (std::size_t i = 0; i + 1 < expression.operands.size(); i += 2) {
    Value key = Evaluate(*expression.operands[i]);
    entries.emplace_back(std::move(key), Evaluate(*expression.operands[i + 1]));
  }
  return Value::MakeDict(std::move(entries));
}

Value Evaluator::EvaluateSlice(const Expression& expression) {
  const Value object = Evaluate(*expression.operands[0]);
  Slice slice;
  const auto bound = [&](std::size_t i, std::optional<std::int64_t> absent) {
    if (expression.operands[i] == nullptr) return absent;
    const Value value = Evaluate(*expression.operands[i]);
    RequireDefined(value);
    if (value.is_none()) return absent;
    if (!value.is_integer() && !value.is_boolean())
      Fail("a slice needs integers, not a " + value.TypeName());
    return std::optional<std::int64_t>(value.integer());
  };
  slice.start = bound(1, std::nullopt);
  slice.stop = bound(2, std::nullopt);
  slice.step = *bound(3, 1);
  return SliceOf(object, slice, budget_);
}

Arguments Evaluator::EvaluateArguments(const CallArguments& arguments) {
  Arguments values;
  for (const auto& argument : arguments.positional)
    values.positional.push_back(Evaluate(*argument));
  for (const auto& [name, argument] : arguments.named)
    values.named.emplace_back(name, Evaluate(*argument));
  if (arguments.list != nullptr) {
    for (Value& item : Items(Evaluate(*arguments.list), budget_))
      values.positional.push_back(std::move(item));
  }
  if (arguments.dict != nullptr) AddNamed(Evaluate(*arguments.dict), &values);
  return values;
}

void Evaluator::AddNamed(const Value& dict, Arguments* values) {
  RequireDefined(dict);
  if (!dict.is_dict()) Fail("an argument after ** needs a dict, not a " + dict.TypeName());
  budget_.SpendFor(dict);
  for (const auto& [key, value] : dict.dict().entries) {
    if (!key.is_text()) Fail("the keys of an argument after ** are names, not a " + key.TypeName());
    for (const auto& [name, given] : values->named)
      if (name == key.bytes()) Fail("the argument '" + name + "' is given twice");
    values->named.emplace_back(key.bytes(), value);
  }
}

Value Evaluator::Call(const Value& callee, const Arguments& arguments) {
  RequireDefined(callee);
  const auto* function = callee.As<const Function>();
  if (function == nullptr) Fail("a " + callee.TypeName() + " cannot be called");
  Value result = function->call(arguments, budget_);
  budget_.SpendFor(result);
  return result;
}

Value Evaluator::EvaluateCall(const Expression& expression) {
  const Value function = Evaluate(*expression.operands[0]);
  return Call(function, EvaluateArguments(expression.arguments));
}

Value Evaluator::EvaluateFilter(const Expression& expression) {
  const ExpressionPtr& operand = expression.operands[0];
  const Value input =
      operand == nullptr ? std::exchange(filter_input_, Value()) : Evaluate(*operand);
  const Arguments arguments = EvaluateArguments(expression.arguments);
  budget_.SpendFor(input);
  if (expression.filter == nullptr) Fail("the filter '" + expression.name + "' is not supported");
  Value result = expression.filter(input, arguments, budget_);
  budget_.SpendFor(result);
  return result;
}

Value Evaluator::EvaluateTest(const Expression& expression) {
  const Value input = Evaluate(*expression.operands[0]);
  if (expression.test == nullptr) Fail("the test '" + expression.name + "' is not supported");
  return expression.test(input, EvaluateArguments(expression.arguments), budget_);
}

Value Evaluator::EvaluateConcat(const Expression& expression) {
  std::vector<Value> parts;
  for (const auto& operand : expression.operands) parts.push_back(Evaluate(*operand));
  return Concatenate(parts, budget_);
}

Value Evaluator::EvaluateCompare(const Expression& expression) {
  Value left = Evaluate(*expression.operands[0]);
  for (std::size_t i = 0; i < expression.compares.size(); ++i) {
    Value right = Evaluate(*expression.operands[i + 1]);
    if (!Compare(expression.compares[i], left, right, budget_)) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::EvaluateCondition(const Expression& expression) {
  if (Evaluate(*expression.operands[1]).IsTrue()) return Evaluate(*expression.operands[0]);
  if (expression.operands[2] != nullptr) return Evaluate(*expression.operands[2]);
  return Value::MakeUndefined("the condition was false, and there is no else");
}

}  // namespace muster::jinja
