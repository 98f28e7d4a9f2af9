#include "trainer/text/chat/jinja/globals.h"

#include <ctime>

#include "trainer/text/chat/jinja/arguments.h"
#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/operators.h"
#include "trainer/text/chat/jinja/print.h"

namespace muster::jinja {
namespace {

// As many as transformers' sandbox allows.
constexpr std::int64_t kMaxRange = 100'000;

Value Range(const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "range", {"start", "stop", "step"}, 1);
  const std::int64_t start = given.Has(1) ? given.IntegerAt(0) : 0;
  const std::int64_t stop = given.Has(1) ? given.IntegerAt(1) : given.IntegerAt(0);
  const std::int64_t step = given.Has(2) ? given.IntegerAt(2) : 1;
  if (step == 0) Fail("the step of a range cannot be 0");
  std::vector<Value> numbers;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<std::int64_t>(numbers.size()) == kMaxRange)
      Fail("a range has more than " + std::to_string(kMaxRange) + " numbers");
    numbers.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  budget.Spend(static_cast<std::int64_t>(numbers.size()));
  return Value::MakeList(std::move(numbers), ListKind::kRange);
}

// The entries that dict() and namespace() are given: a dict or pairs, then names.
std::vector<std::pair<Value, Value>> EntriesOf(const Arguments& arguments, Budget& budget) {
  std::vector<std::pair<Value, Value>> entries;
  if (arguments.positional.size() > 1) Fail("at most one dict, then names, can be given");
  for (const Value& from : arguments.positional) {
    RequireDefined(from);
    if (from.is_dict()) {
      entries = from.dict().entries;
      continue;
    }
    for (const Value& pair : Items(from, budget)) {
      if (!pair.is_list() || pair.list().items.size() != 2) Fail("a dict is made of pairs");
      entries.emplace_back(pair.list().items[0], pair.list().items[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(Value(name), value);
  return entries;
}

Value MakeDict(const Arguments& arguments, Budget& budget) {
  return Value::MakeDict(EntriesOf(arguments, budget));
}

Value MakeNamespace(const Arguments& arguments, Budget& budget) {
  auto space = std::make_shared<Namespace>();
  const Value entries = Value::MakeDict(EntriesOf(arguments, budget));
  for (const auto& [key, value] : entries.dict().entries) {
    if (!key.is_text()) Fail("an attribute of a namespace needs a name");
    CheckAttribute(key.bytes(), value, budget);
    space->attributes.emplace_back(key.bytes(), value);
  }
  return space;
}

Value RaiseException(const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "raise_exception", {"message"}, 1);
  Fail("the template refuses it: " + ToText(given[0], budget).bytes());
}

Value StrftimeNow(const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "strftime_now", {"format"}, 1);
  const std::string& format = given.TextAt(0).bytes();
  if (format.empty()) return "";
  const std::time_t now = budget.now.value_or(0);
  std::tm parts = {};
  ::localtime_r(&now, &parts);
  char buffer[1024];
  const std::size_t length = std::strftime(buffer, sizeof buffer, format.c_str(), &parts);
  if (length == 0) Fail("strftime_now cannot use the format '" + format + "'");
  return std::string(buffer, length);
}

Value Global(const char* name, Value (*call)(const Arguments&, Budget&)) {
  return Function{.name = name, .call = call};
}

}  // namespace

const Value* FindGlobal(const std::string& name, const Budget& budget) {
  static const std::pair<std::string, Value> kGlobals[] = {
      {"range", Global("range", Range)},
      {"dict", Global("dict", MakeDict)},
      {"namespace", Global("namespace", MakeNamespace)},
      {"raise_exception", Global("raise_exception", RaiseException)},
      {"strftime_now", Global("strftime_now", StrftimeNow)},
  };
  if (name == "strftime_now" && !budget.now) return nullptr;
  for (const auto& [known, value] : kGlobals)
    if (known == name) return &value;
  return nullptr;
}

void CheckAttribute(const std::string& name, const Value& value, Budget& budget) {
  budget.Spend(1);
  if (name.starts_with('_')) Fail("an attribute of a namespace cannot begin with an underscore");
  if (value.As<Namespace>() != nullptr || value.As<const Function>() != nullptr)
    Fail("a namespace cannot hold a " + value.TypeName());
  if (value.is_list())
    for (const Value& item : value.list().items) CheckAttribute(name, item, budget);
  if (const auto* loop = value.As<const Loop>())
    for (const Value& item : loop->items->items) CheckAttribute(name, item, budget);
  if (value.is_dict())
    for (const auto& [key, item] : value.dict().entries) CheckAttribute(name, item, budget);
}

}  // namespace muster::jinja
