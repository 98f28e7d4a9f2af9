#include "trainer/text/chat/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/print.h"

namespace muster::jinja {
namespace {

constexpr const char* kNames[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void FailTypes(BinaryOp op, const Value& left, const Value& right) {
  Fail(std::string("unsupported operand types for ") + kNames[static_cast<int>(op)] + ": " +
       left.TypeName() + " and " + right.TypeName());
}

[[noreturn]] void FailOverflow() { Fail("an integer does not fit into 64 bits"); }

std::int64_t FloorDivide(std::int64_t left, std::int64_t right) {
  if (right == -1) {
    std::int64_t negated;
    if (__builtin_sub_overflow(std::int64_t{0}, left, &negated)) FailOverflow();
    return negated;
  }
  const std::int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

std::int64_t Modulo(std::int64_t left, std::int64_t right) {
  if (right == -1) return 0;
  const std::int64_t rest = left % right;
  return rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest;
}

double FloatModulo(double left, double right) {
  const double rest = std::fmod(left, right);
  if (rest == 0) return std::copysign(0.0, right);
  return (rest < 0) != (right < 0) ? rest + right : rest;
}

Value IntegerPower(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) Fail("0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) FailOverflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) FailOverflow();
  }
  return result;
}

Value IntegerArithmetic(BinaryOp op, std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  const bool divides =
      op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && right == 0) Fail("division by zero");
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(left, right, &result)) FailOverflow();
      return result;
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(left, right, &result)) FailOverflow();
      return result;
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(left, right, &result)) FailOverflow();
      return result;
    case BinaryOp::kDivide: return static_cast<double>(left) / static_cast<double>(right);
    case BinaryOp::kFloorDivide: return FloorDivide(left, right);
    case BinaryOp::kModulo: return Modulo(left, right);
    case BinaryOp::kPower: return IntegerPower(left, right);
  }
  return result;
}

Value FloatArithmetic(BinaryOp op, double left, double right) {
  const bool divides =
      op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && right == 0) Fail("division by zero");
  switch (op) {
    case BinaryOp::kAdd: return left + right;
    case BinaryOp::kSubtract: return left - right;
    case BinaryOp::kMultiply: return left * right;
    case BinaryOp::kDivide: return left / right;
    case BinaryOp::kFloorDivide: return std::floor(left / right);
    case BinaryOp::kModulo: return FloatModulo(left, right);
    case BinaryOp::kPower:
      if (left == 0 && right < 0) Fail("0.0 cannot be raised to a negative power");
      if (left < 0 && right != std::floor(right)) Fail("a power that is no real number");
      return std::pow(left, right);
  }
  return left;
}

Value AddTexts(const Text& left, const Text& right) {
  const bool escapes = left.safe != right.safe;
  Text sum = escapes && !left.safe ? EscapeHtml(left) : left;
  sum.Append(escapes && !right.safe ? EscapeHtml(right) : right);
  sum.safe = left.safe || right.safe;
  return sum;
}

Value AddLists(const Value& left, const Value& right) {
  std::vector<Value> items = left.list().items;
  items.insert(items.end(), right.list().items.begin(), right.list().items.end());
  return Value::MakeList(std::move(items), left.list().kind);
}

// A text or a list, several times; none where that makes no sense.
std::optional<Value> Repeat(const Value& value, const Value& times, Budget& budget) {
  if (!times.is_integer() && !times.is_boolean()) return std::nullopt;
  const std::int64_t count = std::max<std::int64_t>(times.integer(), 0);
  if (value.is_text()) {
    if (value.text().empty()) return value;
    if (count > static_cast<std::int64_t>(kMaxTextBytes)) Fail("a text is repeated too often");
    Text text;
    for (std::int64_t i = 0; i < count; ++i) {
      budget.Spend(1);
      text.Append(value.text());
    }
    return Value(std::move(text));
  }
  if (!value.is_list(ListKind::kList) && !value.is_list(ListKind::kTuple)) return std::nullopt;
  const auto& items = value.list().items;
  if (!items.empty() && static_cast<std::size_t>(count) > kMaxListItems / items.size())
    Fail("a list is repeated too often");
  std::vector<Value> all;
  for (std::int64_t i = 0; i < count && !items.empty(); ++i)
    all.insert(all.end(), items.begin(), items.end());
  return Value::MakeList(std::move(all), value.list().kind);
}

bool SameSequence(const Value& left, const Value& right) {
  const bool lists = left.is_list(ListKind::kList) && right.is_list(ListKind::kList);
  return lists || (left.is_list(ListKind::kTuple) && right.is_list(ListKind::kTuple));
}

bool EqualLists(const List& left, const List& right, Budget& budget) {
  if (left.kind != right.kind || left.items.size() != right.items.size()) return false;
  if (left.kind == ListKind::kGenerator || left.kind == ListKind::kView) return &left == &right;
  for (std::size_t i = 0; i < left.items.size(); ++i)
    if (!Equal(left.items[i], right.items[i], budget)) return false;
  return true;
}

bool EqualDicts(const Dict& left, const Dict& right, Budget& budget) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    const Value* other = nullptr;
    for (const auto& [known, its] : right.entries)
      if (KeysEqual(known, key)) other = &its;
    if (other == nullptr || !Equal(value, *other, budget)) return false;
  }
  return true;
}

bool Contains(const Value& container, const Value& value, Budget& budget) {
  budget.SpendFor(container);
  if (container.is_text()) {
    if (!value.is_text()) Fail("'in' a text needs a text, not a " + value.TypeName());
    return container.bytes().find(value.bytes()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (value.is_dict() || value.is_list(ListKind::kList))
      Fail("a " + value.TypeName() + " cannot be the key of a dict");
    for (const auto& [key, its] : container.dict().entries)
      if (KeysEqual(key, value)) return true;
    return false;
  }
  for (const Value& item : Items(container, budget))
    if (Equal(item, value, budget)) return true;
  return false;
}

}  // namespace

Value Apply(BinaryOp op, const Value& left, const Value& right, Budget& budget) {
  RequireDefined(left);
  RequireDefined(right);
  budget.SpendFor(left);
  budget.SpendFor(right);
  if (left.is_number() && right.is_number()) {
    if (left.is_float() || right.is_float())
      return FloatArithmetic(op, left.AsDouble(), right.AsDouble());
    return IntegerArithmetic(op, left.integer(), right.integer());
  }
  if (op == BinaryOp::kAdd && left.is_text() && right.is_text())
    return AddTexts(left.text(), right.text());
  if (op == BinaryOp::kAdd && SameSequence(left, right)) return AddLists(left, right);
  if (op == BinaryOp::kMultiply) {
    if (auto repeated = Repeat(left, right, budget)) return *repeated;
    if (auto repeated = Repeat(right, left, budget)) return *repeated;
  }
  if (op == BinaryOp::kModulo && left.is_text()) Fail("formatting a text with % is not supported");
  FailTypes(op, left, right);
}

Value Negate(const Value& value) {
  RequireDefined(value);
  if (value.is_float()) return -value.number();
  if (!value.is_number()) Fail("a " + value.TypeName() + " has no negative");
  return IntegerArithmetic(BinaryOp::kSubtract, 0, value.integer());
}

bool KeysEqual(const Value& left, const Value& right) {
  if (left.is_text() || right.is_text())
    return left.is_text() && right.is_text() && left.bytes() == right.bytes();
  if (left.is_number() && right.is_number()) {
    if (left.is_float() || right.is_float()) return left.AsDouble() == right.AsDouble();
    return left.integer() == right.integer();
  }
  return left.is_none() && right.is_none();
}

bool Equal(const Value& left, const Value& right, Budget& budget) {
  budget.Spend(1);
  if (left.is_undefined() || right.is_undefined())
    return left.is_undefined() && right.is_undefined();
  if (left.is_text() && right.is_text()) budget.SpendFor(left);
  if (left.is_list() && right.is_list()) return EqualLists(left.list(), right.list(), budget);
  if (left.is_dict() && right.is_dict()) return EqualDicts(left.dict(), right.dict(), budget);
  return KeysEqual(left, right) || left.IsSame(right);
}

bool Less(const Value& left, const Value& right, Budget& budget) {
  RequireDefined(left);
  RequireDefined(right);
  budget.Spend(1);
  if (left.is_number() && right.is_number()) {
    if (left.is_float() || right.is_float()) return left.AsDouble() < right.AsDouble();
    return left.integer() < right.integer();
  }
  // Bytes of UTF-8 are in the order of their code points.
  if (left.is_text() && right.is_text()) {
    budget.SpendFor(left);
    return left.bytes() < right.bytes();
  }
  if (SameSequence(left, right)) {
    const auto& a = left.list().items;
    const auto& b = right.list().items;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
      if (!Equal(a[i], b[i], budget)) return Less(a[i], b[i], budget);
    return a.size() < b.size();
  }
  Fail("a " + left.TypeName() + " and a " + right.TypeName() + " have no order");
}

bool Compare(CompareOp op, const Value& left, const Value& right, Budget& budget) {
  switch (op) {
    case CompareOp::kEqual: return Equal(left, right, budget);
    case CompareOp::kNotEqual: return !Equal(left, right, budget);
    case CompareOp::kLess: return Less(left, right, budget);
    case CompareOp::kGreater: return Less(right, left, budget);
    case CompareOp::kLessEqual: return Less(left, right, budget) || Equal(left, right, budget);
    case CompareOp::kGreaterEqual: return Less(right, left, budget) || Equal(left, right, budget);
    case CompareOp::kIn: return Contains(right, left, budget);
    case CompareOp::kNotIn: return !Contains(right, left, budget);
  }
  return false;
}

Value Concatenate(const std::vector<Value>& values, Budget& budget) {
  Text all;
  for (const Value& value : values) all.Append(ToText(value, budget));
  return all;
}

Text EscapeHtml(const Text& text) {
  if (text.safe) return text;
  Text escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const Mark mark = text.MarkAt(i);
    switch (text.bytes()[i]) {
      case '&': escaped.Append("&amp;", mark); break;
      case '<': escaped.Append("&lt;", mark); break;
      case '>': escaped.Append("&gt;", mark); break;
      case '\'': escaped.Append("&#39;", mark); break;
      case '"': escaped.Append("&#34;", mark); break;
      default: escaped.AppendPart(text, i, i + 1);
    }
  }
  escaped.safe = true;
  return escaped;
}

}  // namespace muster::jinja
