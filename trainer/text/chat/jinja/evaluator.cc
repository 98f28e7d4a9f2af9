#include "trainer/text/chat/jinja/evaluator.h"

#include <algorithm>

#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/globals.h"
#include "trainer/text/chat/jinja/operators.h"
#include "trainer/text/chat/jinja/print.h"
#include "trainer/text/chat/jinja/token_stream.h"

namespace muster::jinja {

Text Evaluator::Run() {
  Text out;
  scope_ = std::make_shared<Scope>();
  out_ = &out;
  Execute(program_.body);
  return out;
}

Evaluator::Flow Evaluator::Execute(const Body& body) {
  const Nesting nesting(&depth_, kMaxDepth, 0);
  for (const auto& statement : body)
    if (const Flow flow = Execute(*statement); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

Evaluator::Flow Evaluator::Execute(const Statement& statement) {
  try {
    return ExecuteKind(statement);
  } catch (Error& error) {
    error.AddLine(statement.line);
    throw;
  }
}

Evaluator::Flow Evaluator::ExecuteKind(const Statement& statement) {
  using Kind = Statement::Kind;
  budget_.Spend(1);
  switch (statement.kind) {
    case Kind::kData: out_->Append(statement.text); break;
    case Kind::kPrint: out_->Append(ToText(Evaluate(*statement.value), budget_)); break;
    case Kind::kFor: return ExecuteFor(statement);
    case Kind::kIf: return ExecuteIf(statement);
    case Kind::kWith: return ExecuteWith(statement);
    case Kind::kSet:
    case Kind::kSetBlock: ExecuteSet(statement); break;
    case Kind::kMacro:
      SetName(statement.name, MakeFunction({.name = statement.name,
                                            .signature = &statement.signature,
                                            .body = &statement.body,
                                            .scope = scope_}));
      break;
    case Kind::kCallBlock: ExecuteCall(statement); break;
    case Kind::kFilterBlock: out_->Append(ToText(Filtered(statement), budget_)); break;
    case Kind::kGeneration: {
      Text text = Capture(statement.body);
      text.AddMark(kTrained);
      out_->Append(text);
      break;
    }
    case Kind::kBreak: return Flow::kBreak;
    case Kind::kContinue: return Flow::kContinue;
  }
  return Flow::kNext;
}

std::shared_ptr<Evaluator::Scope> Evaluator::NewScope() const {
  auto scope = std::make_shared<Scope>();
  scope->around = scope_;
  return scope;
}

// The items that a loop goes over: those that pass its condition.
std::vector<Value> Evaluator::Chosen(const Statement& loop) {
  std::vector<Value> items = Items(Evaluate(*loop.value), budget_);
  if (loop.condition == nullptr) return items;
  std::vector<Value> chosen;
  const std::shared_ptr<Scope> outer = scope_;
  for (Value& item : items) {
    scope_ = NewScope();
    Assign(loop.target, item);
    const bool passes = Evaluate(*loop.condition).IsTrue();
    scope_ = outer;
    if (passes) chosen.push_back(std::move(item));
  }
  return chosen;
}

Evaluator::Flow Evaluator::ExecuteFor(const Statement& loop) {
  const std::shared_ptr<Scope> outer = scope_;
  const Value items = Value::MakeList(Chosen(loop));
  const auto& all = items.list().items;
  for (std::size_t i = 0; i < all.size(); ++i) {
    budget_.Spend(1);
    scope_ = NewScope();
    SetName("loop", std::make_shared<const Loop>(
                        Loop{.items = items.shared_list(), .index = i, .depth0 = 0}));
    Assign(loop.target, all[i]);
    const Flow flow = Execute(loop.body);
    scope_ = outer;
    if (flow == Flow::kBreak) break;
  }
  if (!all.empty()) return Flow::kNext;
  scope_ = NewScope();
  const Flow flow = Execute(loop.otherwise);
  scope_ = outer;
  return flow;
}

Evaluator::Flow Evaluator::ExecuteIf(const Statement& statement) {
  for (const Branch& branch : statement.branches)
    if (branch.condition == nullptr || Evaluate(*branch.condition).IsTrue())
      return Execute(branch.body);
  return Flow::kNext;
}

Evaluator::Flow Evaluator::ExecuteWith(const Statement& with) {
  const std::shared_ptr<Scope> outer = scope_;
  // Values see the names around, not those that stand before them.
  std::vector<Value> values;
  for (const auto& [target, value] : with.assignments) values.push_back(Evaluate(*value));
  scope_ = NewScope();
  for (std::size_t i = 0; i < values.size(); ++i) Assign(with.assignments[i].first, values[i]);
  const Flow flow = Execute(with.body);
  scope_ = outer;
  return flow;
}

void Evaluator::ExecuteSet(const Statement& set) {
  Assign(set.target, set.kind == Statement::Kind::kSet ? Evaluate(*set.value) : Filtered(set));
}

Value Evaluator::Filtered(const Statement& block) {
  Text text = Capture(block.body);
  if (block.value == nullptr) return text;
  filter_input_ = std::move(text);
  return Evaluate(*block.value);
}

void Evaluator::ExecuteCall(const Statement& call) {
  const Value function = Evaluate(*call.value->operands[0]);
  Arguments arguments = EvaluateArguments(call.value->arguments);
  arguments.named.emplace_back(
      "caller",
      MakeFunction(
          {.name = "caller", .signature = &call.signature, .body = &call.body, .scope = scope_}));
  out_->Append(ToText(Call(function, arguments), budget_));
}

void Evaluator::SetName(const std::string& name, Value value) {
  for (auto& [known, old] : scope_->names) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  scope_->names.emplace_back(name, std::move(value));
}

void Evaluator::Assign(const Target& target, const Value& value) {
  if (!target.parts.empty()) {
    const std::vector<Value> parts = Items(value, budget_);
    if (parts.size() != target.parts.size())
      Fail("expected " + std::to_string(target.parts.size()) + " values to take apart, got " +
           std::to_string(parts.size()));
    for (std::size_t i = 0; i < parts.size(); ++i) Assign(target.parts[i], parts[i]);
    return;
  }
  if (target.attribute.empty()) return SetName(target.name, value);
  const Value found = Find(target.name);
  auto* space = found.As<Namespace>();
  if (space == nullptr)
    Fail("'" + target.name + "' is no namespace, so no attribute of it can be set");
  CheckAttribute(target.attribute, value, budget_);
  for (auto& [known, old] : space->attributes) {
    if (known == target.attribute) {
      old = value;
      return;
    }
  }
  space->attributes.emplace_back(target.attribute, value);
}

Text Evaluator::Capture(const Body& body) { return Capture(body, NewScope()); }

Text Evaluator::Capture(const Body& body, std::shared_ptr<Scope> scope) {
  Text text;
  const std::shared_ptr<Scope> outer = std::exchange(scope_, std::move(scope));
  Text* const out = std::exchange(out_, &text);
  Execute(body);
  scope_ = outer;
  out_ = out;
  return text;
}

Value Evaluator::MakeFunction(Callable callable) {
  std::string name = callable.name;
  return Function{
      .name = std::move(name),
      .call = [this, callable = std::move(callable)](const Arguments& arguments, Budget&) -> Value {
        return CallFunction(callable, arguments);
      }};
}

Value Evaluator::CallFunction(const Callable& callable, const Arguments& arguments) {
  const std::shared_ptr<const Scope> around = callable.scope.lock();
  if (around == nullptr)
    Fail("the macro '" + callable.name + "' is called outside of the block that it stands in");
  auto scope = std::make_shared<Scope>();
  scope->around = around;
  const std::shared_ptr<Scope> outer = std::exchange(scope_, scope);
  BindParameters(callable, arguments);
  scope_ = outer;
  return Capture(*callable.body, scope);
}

void Evaluator::BindParameters(const Callable& callable, const Arguments& arguments) {
  const auto& names = callable.signature->names;
  const auto& defaults = callable.signature->defaults;
  BindOthers(callable, arguments);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool named = std::any_of(arguments.named.begin(), arguments.named.end(),
                                   [&](const auto& each) { return each.first == names[i]; });
    const std::size_t first_default = names.size() - defaults.size();
    if (i < arguments.positional.size()) {
      SetName(names[i], arguments.positional[i]);
    } else if (!named && i >= first_default) {
      SetName(names[i], Evaluate(*defaults[i - first_default]));
    } else if (!named) {
      SetName(names[i], Value::MakeUndefined("the parameter '" + names[i] + "' was not provided"));
    }
  }
}

// The named arguments, and those that no parameter takes. One that is given by its place and by its
// name goes to kwargs, as in Jinja2.
void Evaluator::BindOthers(const Callable& callable, const Arguments& arguments) {
  const Signature& signature = *callable.signature;
  const auto& names = signature.names;
  const auto given = static_cast<std::ptrdiff_t>(arguments.positional.size());
  const auto known = static_cast<std::ptrdiff_t>(names.size());
  const std::string macro = "the macro '" + callable.name + "' ";
  if (given > known && !signature.has_varargs)
    Fail(macro + "takes " + std::to_string(known) + " arguments at most");
  SetName("caller", Value::MakeUndefined("no caller defined"));
  std::vector<std::pair<Value, Value>> others;
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(names.begin(), names.end(), name) - names.begin();
    if (name == "caller" || (place < known && place >= given)) {
      SetName(name, value);
      continue;
    }
    if (!signature.has_kwargs)
      Fail(macro +
           (place < known ? "is given '" + name + "' twice" : "has no parameter '" + name + "'"));
    others.emplace_back(Text(name), value);
  }
  if (signature.has_kwargs) SetName("kwargs", Value::MakeDict(std::move(others)));
  if (!signature.has_varargs) return;
  const auto first = arguments.positional.begin() + std::min(given, known);
  SetName("varargs", Value::MakeList({first, arguments.positional.end()}, ListKind::kTuple));
}

}  // namespace muster::jinja
