#include "trainer/text/chat/jinja/methods.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "trainer/text/chat/jinja/arguments.h"
#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/operators.h"
#include "trainer/text/chat/jinja/text_operations.h"

namespace muster::jinja {
namespace {

using Method = Value (*)(const Value& self, const Arguments& arguments, Budget& budget);

Value ListOf(std::vector<Text> texts) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) items.emplace_back(std::move(text));
  return Value::MakeList(std::move(items));
}

Value StripWith(const Value& self, const Arguments& arguments, StripOptions options) {
  const Parameters given(arguments, "strip", {"chars"});
  options.given = given.HasValue(0);
  if (options.given) options.characters = given.TextAt(0).bytes();
  return Strip(self.text(), options);
}

Value DoStrip(const Value& self, const Arguments& arguments, Budget&) {
  return StripWith(self, arguments, {});
}

Value DoStripLeft(const Value& self, const Arguments& arguments, Budget&) {
  return StripWith(self, arguments, {.right = false});
}

Value DoStripRight(const Value& self, const Arguments& arguments, Budget&) {
  return StripWith(self, arguments, {.left = false});
}

Value SplitWith(const Value& self, const Arguments& arguments, SplitOptions options) {
  const Parameters given(arguments, "split", {"sep", "maxsplit"});
  options.limit = given.IntegerOr(1, -1);
  if (!given.HasValue(0)) {
    if (given.Has(0)) RequireDefined(given[0]);
    return ListOf(SplitSpace(self.text(), options));
  }
  const Text& separator = given.TextAt(0);
  if (separator.empty()) Fail("split needs a separator that is not empty");
  return ListOf(SplitAt(self.text(), separator.bytes(), options));
}

Value DoSplit(const Value& self, const Arguments& arguments, Budget&) {
  return SplitWith(self, arguments, {});
}

Value DoSplitRight(const Value& self, const Arguments& arguments, Budget&) {
  return SplitWith(self, arguments, {.from_right = true});
}

Value DoSplitLines(const Value& self, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "splitlines", {});
  std::vector<Text> lines;
  for (const Interval& line : SplitLines(self.bytes()))
    lines.push_back(self.text().Part(line.begin, line.end));
  return ListOf(std::move(lines));
}

Value DoReplace(const Value& self, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "replace", {"old", "new", "count"}, 2);
  return Replace(self.text(), given.TextAt(0), given.TextAt(1), given.IntegerOr(2, -1));
}

// Whether one text, or any of a tuple of texts, passes.
template <typename Passes>
Value AnyOf(const Arguments& arguments, const char* what, const Passes& passes) {
  const Parameters given(arguments, what, {"text"}, 1);
  if (!given[0].is_list(ListKind::kTuple)) return passes(given.TextAt(0).bytes());
  for (const Value& each : given[0].list().items) {
    if (!each.is_text()) Fail(std::string(what) + " needs texts");
    if (passes(each.bytes())) return true;
  }
  return false;
}

Value DoStartsWith(const Value& self, const Arguments& arguments, Budget&) {
  return AnyOf(arguments, "startswith",
               [&](const std::string& start) { return self.bytes().starts_with(start); });
}

Value DoEndsWith(const Value& self, const Arguments& arguments, Budget&) {
  return AnyOf(arguments, "endswith",
               [&](const std::string& end) { return self.bytes().ends_with(end); });
}

template <Text (*kChange)(const Text&)>
Value DoChange(const Value& self, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "a method that changes case", {});
  return kChange(self.text());
}

Value PositionOf(const Value& self, std::size_t offset) {
  if (offset == std::string::npos) return -1;
  return static_cast<std::int64_t>(Length(std::string_view(self.bytes()).substr(0, offset)));
}

Value DoFind(const Value& self, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "find", {"sub"}, 1);
  return PositionOf(self, self.bytes().find(given.TextAt(0).bytes()));
}

Value DoFindRight(const Value& self, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "rfind", {"sub"}, 1);
  return PositionOf(self, self.bytes().rfind(given.TextAt(0).bytes()));
}

Value DoCount(const Value& self, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "count", {"sub"}, 1);
  const std::string& part = given.TextAt(0).bytes();
  if (part.empty()) return static_cast<std::int64_t>(Length(self.bytes())) + 1;
  return static_cast<std::int64_t>(SplitAt(self.text(), part, {}).size()) - 1;
}

Value DoJoin(const Value& self, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "join", {"iterable"}, 1);
  Text joined;
  bool first = true;
  for (const Value& item : Items(given[0], budget)) {
    if (!item.is_text()) Fail("join needs texts, not a " + item.TypeName());
    if (!first) joined.Append(self.text());
    joined.Append(item.text());
    first = false;
  }
  return joined;
}

Value DoRemovePrefix(const Value& self, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "removeprefix", {"prefix"}, 1);
  const std::string& prefix = given.TextAt(0).bytes();
  if (!self.bytes().starts_with(prefix)) return self;
  return self.text().Part(prefix.size(), self.text().size());
}

Value DoRemoveSuffix(const Value& self, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "removesuffix", {"suffix"}, 1);
  const std::string& suffix = given.TextAt(0).bytes();
  if (!self.bytes().ends_with(suffix)) return self;
  return self.text().Part(0, self.text().size() - suffix.size());
}

template <bool (*kPasses)(std::int32_t)>
Value DoAllOf(const Value& self, const Arguments&, Budget&) {
  return AllOf(self.bytes(), kPasses);
}

Value DoIsUpper(const Value& self, const Arguments&, Budget&) { return IsAllUpper(self.bytes()); }
Value DoIsLower(const Value& self, const Arguments&, Budget&) { return IsAllLower(self.bytes()); }

Value DoKeys(const Value& self, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "keys", {});
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict().entries) keys.push_back(key);
  return Value::MakeList(std::move(keys), ListKind::kView);
}

Value DoValues(const Value& self, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "values", {});
  std::vector<Value> values;
  for (const auto& [key, value] : self.dict().entries) values.push_back(value);
  return Value::MakeList(std::move(values), ListKind::kView);
}

Value DoItems(const Value& self, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "items", {});
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.dict().entries)
    pairs.push_back(Value::MakeList({key, value}, ListKind::kTuple));
  return Value::MakeList(std::move(pairs), ListKind::kView);
}

Value DoGet(const Value& self, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "get", {"key", "default"}, 1);
  for (const auto& [key, value] : self.dict().entries)
    if (KeysEqual(key, given[0])) return value;
  return given.Has(1) ? given[1] : Value(None{});
}

Value DoIndex(const Value& self, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "index", {"value"}, 1);
  const auto& items = self.list().items;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (Equal(items[i], given[0], budget)) return static_cast<std::int64_t>(i);
  Fail("the list does not hold what index looks for");
}

Value DoCountItems(const Value& self, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "count", {"value"}, 1);
  std::int64_t count = 0;
  for (const Value& item : self.list().items) count += Equal(item, given[0], budget) ? 1 : 0;
  return count;
}

struct NamedMethod {
  std::string_view name;
  Method method;  // null: Python has it, templates may not call it here
};

constexpr NamedMethod kTextMethods[] = {
    {"strip", DoStrip},
    {"lstrip", DoStripLeft},
    {"rstrip", DoStripRight},
    {"split", DoSplit},
    {"rsplit", DoSplitRight},
    {"splitlines", DoSplitLines},
    {"replace", DoReplace},
    {"startswith", DoStartsWith},
    {"endswith", DoEndsWith},
    {"upper", DoChange<Upper>},
    {"lower", DoChange<Lower>},
    {"title", DoChange<TitleByLetters>},
    {"capitalize", DoChange<Capitalize>},
    {"find", DoFind},
    {"rfind", DoFindRight},
    {"count", DoCount},
    {"join", DoJoin},
    {"removeprefix", DoRemovePrefix},
    {"removesuffix", DoRemoveSuffix},
    {"isdigit", DoAllOf<IsDigit>},
    {"isalpha", DoAllOf<IsAlphabetic>},
    {"isspace", DoAllOf<IsSpace>},
    {"isupper", DoIsUpper},
    {"islower", DoIsLower},
    {"casefold", nullptr},
    {"center", nullptr},
    {"encode", nullptr},
    {"expandtabs", nullptr},
    {"format", nullptr},
    {"format_map", nullptr},
    {"index", nullptr},
    {"isalnum", nullptr},
    {"isascii", nullptr},
    {"isdecimal", nullptr},
    {"isidentifier", nullptr},
    {"isnumeric", nullptr},
    {"isprintable", nullptr},
    {"istitle", nullptr},
    {"ljust", nullptr},
    {"partition", nullptr},
    {"rindex", nullptr},
    {"rjust", nullptr},
    {"rpartition", nullptr},
    {"swapcase", nullptr},
    {"translate", nullptr},
    {"zfill", nullptr},
};
constexpr NamedMethod kDictMethods[] = {
    {"keys", DoKeys},      {"values", DoValues},    {"items", DoItems},  {"get", DoGet},
    {"clear", nullptr},    {"copy", nullptr},       {"pop", nullptr},    {"popitem", nullptr},
    {"fromkeys", nullptr}, {"setdefault", nullptr}, {"update", nullptr},
};
constexpr NamedMethod kListMethods[] = {
    {"index", DoIndex},  {"count", DoCountItems}, {"append", nullptr}, {"clear", nullptr},
    {"copy", nullptr},   {"extend", nullptr},     {"insert", nullptr}, {"pop", nullptr},
    {"remove", nullptr}, {"reverse", nullptr},    {"sort", nullptr},
};

template <std::size_t kCount>
std::optional<Value> Bind(const NamedMethod (&methods)[kCount], const Value& value,
                          const std::string& name) {
  const auto* found = std::find_if(std::begin(methods), std::end(methods),
                                   [&](const NamedMethod& each) { return each.name == name; });
  if (found == std::end(methods)) return std::nullopt;
  const Method method = found->method;
  if (method == nullptr) {
    const std::string what = "the method " + name + " of a " + value.TypeName();
    return Value(Function{.name = name, .call = [what](const Arguments&, Budget&) -> Value {
                            Fail(what + " is not supported (nothing may change a value)");
                          }});
  }
  return Value(Function{.name = name,
                        .call =
                            [method, value](const Arguments& arguments, Budget& budget) {
                              budget.SpendFor(value);
                              for (const Value& each : arguments.positional) budget.SpendFor(each);
                              return method(value, arguments, budget);
                            },
                        .depth = DepthOf(value) + 1});
}

}  // namespace

std::optional<Value> MethodOf(const Value& value, const std::string& name) {
  if (value.is_text()) return Bind(kTextMethods, value, name);
  if (value.is_dict()) return Bind(kDictMethods, value, name);
  if (value.is_list(ListKind::kList)) return Bind(kListMethods, value, name);
  return std::nullopt;
}

}  // namespace muster::jinja
