// Items, attributes and slices: how expressions reach into values (operators.h).
#include <algorithm>

#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/methods.h"
#include "trainer/text/chat/jinja/operators.h"
#include "trainer/text/chat/jinja/print.h"
#include "trainer/text/chat/jinja/text_operations.h"

namespace muster::jinja {
namespace {

bool IsSubscriptable(const List& list) {
  return list.kind != ListKind::kView && list.kind != ListKind::kGenerator;
}

// Counted from the end where it is negative; none: outside.
std::optional<std::size_t> Position(std::int64_t index, std::size_t count) {
  if (index < 0) index += static_cast<std::int64_t>(count);
  if (index < 0 || index >= static_cast<std::int64_t>(count)) return std::nullopt;
  return static_cast<std::size_t>(index);
}

bool IsAsciiDigit(std::int32_t c) { return c >= '0' && c <= '9'; }

Value Character(const Text& text, std::int64_t index, const Value& missing) {
  const auto position = Position(index, Length(text.bytes()));
  if (!position) return missing;
  const std::size_t begin = OffsetOf(text.bytes(), *position);
  return text.Part(begin, NextOffset(text.bytes(), begin));
}

Value MissingItem(const Value& value, const Value& key) {
  if (key.is_text())
    return Value::MakeUndefined("the " + value.TypeName() + " has no '" + key.bytes() + "'");
  return Value::MakeUndefined("the " + value.TypeName() + " has no element " + Repr(key));
}

// Without falling back to attributes; none: there is no such item.
std::optional<Value> OwnItem(const Value& value, const Value& key) {
  if (value.is_dict()) {
    for (const auto& [known, item] : value.dict().entries)
      if (KeysEqual(known, key)) return item;
    return std::nullopt;
  }
  if (!key.is_integer() && !key.is_boolean()) return std::nullopt;
  if (value.is_text()) {
    const Value item = Character(value.text(), key.integer(), Value());
    return item.is_undefined() ? std::nullopt : std::optional<Value>(item);
  }
  if (!value.is_list() || !IsSubscriptable(value.list())) return std::nullopt;
  const auto position = Position(key.integer(), value.list().items.size());
  if (!position) return std::nullopt;
  return value.list().items[*position];
}

Function CycleOf(const Loop& loop) {
  return {.name = "cycle",
          .call = [index = loop.index](const Arguments& arguments, Budget&) -> Value {
            if (arguments.positional.empty()) Fail("cycle needs items");
            return arguments.positional[index % arguments.positional.size()];
          }};
}

Value LoopAttribute(const Value& value, const std::string& name) {
  const Loop& loop = *value.As<const Loop>();
  const auto& items = loop.items->items;
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto count = static_cast<std::int64_t>(items.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return count - index;
  if (name == "revindex0") return count - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == count;
  if (name == "length") return count;
  if (name == "depth") return loop.depth0 + 1;
  if (name == "depth0") return loop.depth0;
  if (name == "cycle") return CycleOf(loop);
  if (name == "previtem")
    return index > 0 ? items[loop.index - 1] : Value::MakeUndefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < count ? items[loop.index + 1]
                             : Value::MakeUndefined("there is no next item");
  return MissingItem(value, name);
}

// None where the type has no attribute or method of the name.
std::optional<Value> OwnAttribute(const Value& value, const std::string& name) {
  if (const auto* space = value.As<Namespace>()) {
    const Value* found = FindAttribute(*space, name);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (value.As<const Loop>() != nullptr) return LoopAttribute(value, name);
  return MethodOf(value, name);
}

// The indices that a slice takes of `count` items, as Python's slice.indices.
std::vector<std::size_t> SliceIndices(const Slice& slice, std::size_t count, Budget& budget) {
  const auto size = static_cast<std::int64_t>(count);
  const bool forward = slice.step > 0;
  const std::int64_t low = forward ? 0 : -1;
  const std::int64_t high = forward ? size : size - 1;
  const auto clamp = [&](const std::optional<std::int64_t>& index, std::int64_t absent) {
    if (!index) return absent;
    return std::clamp(*index < 0 ? *index + size : *index, low, high);
  };
  const std::int64_t start = clamp(slice.start, forward ? low : high);
  const std::int64_t stop = clamp(slice.stop, forward ? high : low);
  // A step beyond the size takes one item as well as one of the size does.
  const std::int64_t step = std::clamp(slice.step, -size - 1, size + 1);
  std::vector<std::size_t> indices;
  for (std::int64_t i = start; forward ? i < stop : i > stop; i += step)
    indices.push_back(static_cast<std::size_t>(i));
  budget.Spend(static_cast<std::int64_t>(indices.size()));
  return indices;
}

Value SliceText(const Text& text, const Slice& slice, Budget& budget) {
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i < text.size(); i = NextOffset(text.bytes(), i)) offsets.push_back(i);
  const std::size_t count = offsets.size();
  offsets.push_back(text.size());
  budget.Spend(static_cast<std::int64_t>(count) / Budget::kBytesPerStep);
  Text part;
  for (const std::size_t i : SliceIndices(slice, count, budget))
    part.AppendPart(text, offsets[i], offsets[i + 1]);
  return part;
}

}  // namespace

Value Item(const Value& value, const Value& key) {
  RequireDefined(value);
  if (auto item = OwnItem(value, key)) return *item;
  if (key.is_text())
    if (auto attribute = OwnAttribute(value, key.bytes())) return *attribute;
  return MissingItem(value, key);
}

Value ItemByPath(const Value& value, const Value& path, const Value* absent) {
  if (!path.is_text()) {
    const Value item = Item(value, path);
    return item.is_undefined() && absent != nullptr ? *absent : item;
  }
  Value item = value;
  for (const Text& part : SplitAt(path.text(), ".", {})) {
    const bool number = AllOf(part.bytes(), IsAsciiDigit) && part.size() < 10;
    item = Item(item, number ? Value(std::stoi(part.bytes())) : Value(part));
    if (item.is_undefined() && absent != nullptr) item = *absent;
  }
  return item;
}

Value Attribute(const Value& value, const std::string& name) {
  RequireDefined(value);
  if (auto attribute = OwnAttribute(value, name)) return *attribute;
  if (value.is_dict())
    if (const Value* item = FindText(value.dict(), name)) return *item;
  return MissingItem(value, name);
}

Value SliceOf(const Value& value, const Slice& slice, Budget& budget) {
  RequireDefined(value);
  if (slice.step == 0) Fail("the step of a slice cannot be 0");
  if (value.is_text()) return SliceText(value.text(), slice, budget);
  if (!value.is_list() || !IsSubscriptable(value.list()))
    Fail("a " + value.TypeName() + " cannot be sliced");
  const List& list = value.list();
  std::vector<Value> items;
  for (const std::size_t i : SliceIndices(slice, list.items.size(), budget))
    items.push_back(list.items[i]);
  return Value::MakeList(std::move(items), list.kind);
}

std::vector<Value> Items(const Value& value, Budget& budget) {
  if (value.is_undefined()) return {};
  budget.SpendFor(value);
  std::vector<Value> items;
  if (value.is_list()) {
    const List& list = value.list();
    if (list.kind != ListKind::kGenerator) return list.items;
    items.assign(list.items.begin() + static_cast<std::ptrdiff_t>(list.given), list.items.end());
    list.given = list.items.size();
    return items;
  }
  if (value.is_dict()) {
    for (const auto& [key, its] : value.dict().entries) items.push_back(key);
    return items;
  }
  if (!value.is_text()) Fail("a " + value.TypeName() + " cannot be iterated over");
  const Text& text = value.text();
  if (text.size() > kMaxListItems) Fail("a text is too long to be taken apart");
  budget.Spend(static_cast<std::int64_t>(text.size()));
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t next = NextOffset(text.bytes(), i);
    items.emplace_back(text.Part(i, next));
    i = next;
  }
  return items;
}

bool IsIterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_list() || value.is_dict() ||
         value.As<const Loop>() != nullptr;
}

std::optional<std::int64_t> LengthOf(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) return static_cast<std::int64_t>(Length(value.bytes()));
  if (value.is_dict()) return static_cast<std::int64_t>(value.dict().entries.size());
  if (const auto* loop = value.As<const Loop>())
    return static_cast<std::int64_t>(loop->items->items.size());
  if (value.is_list() && value.list().kind != ListKind::kGenerator)
    return static_cast<std::int64_t>(value.list().items.size());
  return std::nullopt;
}

}  // namespace muster::jinja
