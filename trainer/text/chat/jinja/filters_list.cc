// Filters on lists and dicts, and default (filters.h).
#include <algorithm>
#include <utility>

#include "trainer/text/chat/jinja/arguments.h"
#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/filter_table.h"
#include "trainer/text/chat/jinja/operators.h"
#include "trainer/text/chat/jinja/text_operations.h"

namespace muster::jinja {
namespace {

Value Generator(std::vector<Value> items) {
  return Value::MakeList(std::move(items), ListKind::kGenerator);
}

Value DoDefault(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "default", {"default_value", "boolean"});
  const bool absent = input.is_undefined() || (given.IsTrue(1) && !input.IsTrue());
  if (!absent) return input;
  return given.Has(0) ? given[0] : Value("");
}

Value DoList(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "list", {});
  return Value::MakeList(Items(input, budget));
}

Value DoFirst(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "first", {});
  if (input.is_list(ListKind::kGenerator)) {
    const List& list = input.list();
    if (list.given < list.items.size()) return list.items[list.given++];
    return Value::MakeUndefined("there is no first item");
  }
  if (input.is_text() && !input.text().empty())
    return input.text().Part(0, NextOffset(input.bytes(), 0));
  const std::vector<Value> items = Items(input, budget);
  return items.empty() ? Value::MakeUndefined("there is no first item") : items.front();
}

Value DoLast(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "last", {});
  if (input.is_list(ListKind::kGenerator)) Fail("a generator cannot be read from its end");
  if (input.is_text() && !input.text().empty())
    return input.text().Part(PreviousOffset(input.bytes(), input.text().size()),
                             input.text().size());
  const std::vector<Value> items = Items(input, budget);
  return items.empty() ? Value::MakeUndefined("there is no last item") : items.back();
}

Value DoReverse(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "reverse", {});
  if (input.is_text()) return SliceOf(input, {.start = {}, .stop = {}, .step = -1}, budget);
  std::vector<Value> items = Items(input, budget);
  std::reverse(items.begin(), items.end());
  return Generator(std::move(items));
}

Value DoItems(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "items", {});
  std::vector<Value> pairs;
  if (input.is_undefined()) return Generator({});
  if (!input.is_dict()) Fail("items needs a dict, not a " + input.TypeName());
  for (const auto& [key, value] : input.dict().entries)
    pairs.push_back(Value::MakeList({key, value}, ListKind::kTuple));
  return Generator(std::move(pairs));
}

// Sorts by keys[i] of items[i]; stable, and stable too where it goes down.
std::vector<Value> SortBy(const std::vector<Value>& items, const std::vector<Value>& keys,
                          bool descending, Budget& budget) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return descending ? Less(keys[b], keys[a], budget) : Less(keys[a], keys[b], budget);
  });
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const std::size_t i : order) sorted.push_back(items[i]);
  return sorted;
}

Value DoDictSort(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  RequireDefined(input);
  if (!input.is_dict()) Fail("dictsort needs a dict, not a " + input.TypeName());
  const std::string by = given.Has(1) ? given.TextAt(1).bytes() : "key";
  if (by != "key" && by != "value") Fail("dictsort sorts by key or by value");
  std::vector<Value> pairs, keys;
  for (const auto& [key, value] : input.dict().entries) {
    pairs.push_back(Value::MakeList({key, value}, ListKind::kTuple));
    const Value& chosen = by == "key" ? key : value;
    keys.push_back(given.IsTrue(0) ? chosen : IgnoreCase(chosen));
  }
  return Value::MakeList(SortBy(pairs, keys, given.IsTrue(2), budget));
}

Value SortKey(const Value& item, const Parameters& given, Budget& budget) {
  const auto cased = [&](const Value& value) {
    return given.IsTrue(1) ? value : IgnoreCase(value);
  };
  if (!given.HasValue(2)) return cased(item);
  std::vector<Value> parts;
  if (!given[2].is_text()) return cased(ItemByPath(item, given[2]));
  for (Text& path : SplitAt(given[2].text(), ",", {}))
    parts.push_back(cased(ItemByPath(item, Value(std::move(path)))));
  budget.Spend(static_cast<std::int64_t>(parts.size()));
  return Value::MakeList(std::move(parts));
}

Value DoSort(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> items = Items(input, budget);
  std::vector<Value> keys;
  for (const Value& item : items) keys.push_back(SortKey(item, given, budget));
  return Value::MakeList(SortBy(items, keys, given.IsTrue(0), budget));
}

Value DoUnique(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "unique", {"case_sensitive", "attribute"});
  std::vector<Value> seen, kept;
  for (const Value& item : Items(input, budget)) {
    const Value chosen = given.HasValue(1) ? ItemByPath(item, given[1]) : item;
    const Value key = given.IsTrue(0) ? chosen : IgnoreCase(chosen);
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&](const Value& each) { return Equal(each, key, budget); });
    if (known) continue;
    seen.push_back(key);
    kept.push_back(item);
  }
  return Generator(std::move(kept));
}

Value Extreme(const Value& input, const Arguments& arguments, bool largest, Budget& budget) {
  const Parameters given(arguments, "min or max", {"case_sensitive", "attribute"});
  const std::vector<Value> items = Items(input, budget);
  if (items.empty()) return Value::MakeUndefined("there is no item");
  const auto key_of = [&](const Value& item) {
    const Value chosen = given.HasValue(1) ? ItemByPath(item, given[1]) : item;
    return given.IsTrue(0) ? chosen : IgnoreCase(chosen);
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    const Value key = key_of(items[i]);
    const Value known = key_of(items[best]);
    if (largest ? Less(known, key, budget) : Less(key, known, budget)) best = i;
  }
  return items[best];
}

Value DoMin(const Value& input, const Arguments& arguments, Budget& budget) {
  return Extreme(input, arguments, false, budget);
}

Value DoMax(const Value& input, const Arguments& arguments, Budget& budget) {
  return Extreme(input, arguments, true, budget);
}

Value DoBatch(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "batch", {"linecount", "fill_with"}, 1);
  const std::int64_t count = given.IntegerAt(0);
  if (count < 1 || count > static_cast<std::int64_t>(kMaxListItems))
    Fail("batch needs a number of items above 0");
  std::vector<Value> batches, batch;
  for (const Value& item : Items(input, budget)) {
    if (static_cast<std::int64_t>(batch.size()) == count)
      batches.push_back(Value::MakeList(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (given.HasValue(1)) batch.resize(static_cast<std::size_t>(count), given[1]);
    budget.Spend(static_cast<std::int64_t>(batch.size()));
    batches.push_back(Value::MakeList(std::move(batch)));
  }
  return Generator(std::move(batches));
}

// The arguments that follow the first `count`.
Arguments After(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

Value DoMap(const Value& input, const Arguments& arguments, Budget& budget) {
  std::vector<Value> mapped;
  if (!input.IsTrue()) return Generator({});
  if (arguments.positional.empty()) {
    const Parameters given(arguments, "map without the name of a filter", {"attribute", "default"},
                           1);
    for (const Value& item : Items(input, budget)) {
      const Value found = ItemByPath(item, given[0], given.HasValue(1) ? &given[1] : nullptr);
      mapped.push_back(found);
    }
    return Generator(std::move(mapped));
  }
  const Arguments rest = After(arguments, 1);
  for (const Value& item : Items(input, budget))
    mapped.push_back(CallFilter(arguments.positional[0], item, rest, budget));
  return Generator(std::move(mapped));
}

struct Selection {
  bool by_attribute;
  bool keep;  // the items that pass; else those that do not
};

Value Select(const Value& input, const Arguments& arguments, Selection selection, Budget& budget) {
  if (!input.IsTrue()) return Generator({});  // none, too
  const std::size_t before = selection.by_attribute ? 1 : 0;
  if (arguments.positional.size() < before) Fail("the name of an attribute is missing");
  const bool by_test = arguments.positional.size() > before;
  const Arguments rest = by_test ? After(arguments, before + 1) : Arguments();
  std::vector<Value> kept;
  for (const Value& item : Items(input, budget)) {
    const Value judged = selection.by_attribute ? ItemByPath(item, arguments.positional[0]) : item;
    const bool passes =
        by_test ? CallTest(arguments.positional[before], judged, rest, budget) : judged.IsTrue();
    if (passes == selection.keep) kept.push_back(item);
  }
  return Generator(std::move(kept));
}

template <bool kByAttribute, bool kKeep>
Value DoSelect(const Value& input, const Arguments& arguments, Budget& budget) {
  return Select(input, arguments, {.by_attribute = kByAttribute, .keep = kKeep}, budget);
}

constexpr NamedFilter kFilters[] = {
    {"default", DoDefault},
    {"d", DoDefault},
    {"list", DoList},
    {"first", DoFirst},
    {"last", DoLast},
    {"reverse", DoReverse},
    {"items", DoItems},
    {"dictsort", DoDictSort},
    {"sort", DoSort},
    {"unique", DoUnique},
    {"min", DoMin},
    {"max", DoMax},
    {"batch", DoBatch},
    {"map", DoMap},
    {"select", DoSelect<false, true>},
    {"reject", DoSelect<false, false>},
    {"selectattr", DoSelect<true, true>},
    {"rejectattr", DoSelect<true, false>},
};

}  // namespace

std::span<const NamedFilter> ListFilters() { return kFilters; }

Value IgnoreCase(const Value& value) {
  return value.is_text() ? Value(Lower(value.text())) : value;
}

}  // namespace muster::jinja
