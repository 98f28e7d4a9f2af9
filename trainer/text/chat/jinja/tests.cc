// The tests of templates: value is name (filters.h).
#include <algorithm>
#include <iterator>

#include "trainer/text/chat/jinja/arguments.h"
#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/filters.h"
#include "trainer/text/chat/jinja/operators.h"
#include "trainer/text/chat/jinja/print.h"
#include "trainer/text/chat/jinja/text_operations.h"

namespace muster::jinja {
namespace {

void TakesNothing(const Arguments& arguments) { const Parameters given(arguments, "the test", {}); }

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.is_boolean(); }
bool IsExactlyTrue(const Value& value) { return value.is_boolean() && value.boolean(); }
bool IsExactlyFalse(const Value& value) { return value.is_boolean() && !value.boolean(); }
bool IsInteger(const Value& value) { return value.is_integer(); }
bool IsFloat(const Value& value) { return value.is_float(); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.is_text(); }
bool IsMapping(const Value& value) { return value.is_dict(); }
bool IsCallable(const Value& value) {
  return value.As<const Function>() != nullptr || value.is_undefined();
}
bool IsEscaped(const Value& value) { return value.is_text() && value.text().safe; }

bool IsSequence(const Value& value) {
  if (value.is_list())
    return value.list().kind != ListKind::kGenerator && value.list().kind != ListKind::kView;
  return value.is_undefined() || value.is_text() || value.is_dict();
}

template <bool (*kJudge)(const Value&)>
bool Judge(const Value& input, const Arguments& arguments, Budget&) {
  TakesNothing(arguments);
  return kJudge(input);
}

std::int64_t Remainder(const Value& input, const Value& divisor, Budget& budget) {
  const Value rest = Apply(BinaryOp::kModulo, input, divisor, budget);
  return rest.is_float() ? (rest.number() == 0 ? 0 : rest.number() == 1 ? 1 : 2) : rest.integer();
}

bool IsOdd(const Value& input, const Arguments& arguments, Budget& budget) {
  TakesNothing(arguments);
  return Remainder(input, 2, budget) == 1;
}

bool IsEven(const Value& input, const Arguments& arguments, Budget& budget) {
  TakesNothing(arguments);
  return Remainder(input, 2, budget) == 0;
}

bool IsDivisibleBy(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "divisibleby", {"num"}, 1);
  return Remainder(input, given[0], budget) == 0;
}

bool IsLowerText(const Value& input, const Arguments& arguments, Budget& budget) {
  TakesNothing(arguments);
  return IsAllLower(ToText(input, budget).bytes());
}

bool IsUpperText(const Value& input, const Arguments& arguments, Budget& budget) {
  TakesNothing(arguments);
  return IsAllUpper(ToText(input, budget).bytes());
}

bool IsSame(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "sameas", {"other"}, 1);
  return input.IsSame(given[0]);
}

bool IsFilter(const Value& input, const Arguments& arguments, Budget&) {
  TakesNothing(arguments);
  return input.is_text() && FindFilter(input.bytes()) != nullptr;
}

bool IsTest(const Value& input, const Arguments& arguments, Budget&) {
  TakesNothing(arguments);
  return input.is_text() && FindTest(input.bytes()) != nullptr;
}

template <CompareOp kOp>
bool IsCompared(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "a comparison", {"other"}, 1);
  return Compare(kOp, input, given[0], budget);
}

struct NamedTest {
  std::string_view name;
  Test test;
};

constexpr NamedTest kTests[] = {
    {"defined", Judge<IsDefined>},
    {"undefined", Judge<IsUndefined>},
    {"none", Judge<IsNone>},
    {"boolean", Judge<IsBoolean>},
    {"true", Judge<IsExactlyTrue>},
    {"false", Judge<IsExactlyFalse>},
    {"integer", Judge<IsInteger>},
    {"float", Judge<IsFloat>},
    {"number", Judge<IsNumber>},
    {"string", Judge<IsString>},
    {"mapping", Judge<IsMapping>},
    {"sequence", Judge<IsSequence>},
    {"iterable", Judge<IsIterable>},
    {"callable", Judge<IsCallable>},
    {"escaped", Judge<IsEscaped>},
    {"odd", IsOdd},
    {"even", IsEven},
    {"divisibleby", IsDivisibleBy},
    {"lower", IsLowerText},
    {"upper", IsUpperText},
    {"sameas", IsSame},
    {"filter", IsFilter},
    {"test", IsTest},
    {"in", IsCompared<CompareOp::kIn>},
    {"==", IsCompared<CompareOp::kEqual>},
    {"eq", IsCompared<CompareOp::kEqual>},
    {"equalto", IsCompared<CompareOp::kEqual>},
    {"!=", IsCompared<CompareOp::kNotEqual>},
    {"ne", IsCompared<CompareOp::kNotEqual>},
    {">", IsCompared<CompareOp::kGreater>},
    {"gt", IsCompared<CompareOp::kGreater>},
    {"greaterthan", IsCompared<CompareOp::kGreater>},
    {">=", IsCompared<CompareOp::kGreaterEqual>},
    {"ge", IsCompared<CompareOp::kGreaterEqual>},
    {"<", IsCompared<CompareOp::kLess>},
    {"lt", IsCompared<CompareOp::kLess>},
    {"lessthan", IsCompared<CompareOp::kLess>},
    {"<=", IsCompared<CompareOp::kLessEqual>},
    {"le", IsCompared<CompareOp::kLessEqual>},
};

}  // namespace

Test FindTest(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [&](const NamedTest& each) { return each.name == name; });
  return found == std::end(kTests) ? nullptr : found->test;
}

}  // namespace muster::jinja
