// The operators of expressions, with Python's meaning.
//
// Pure functions but for the budget; they throw Error where Python would raise.
#pragma once

#include <optional>
#include <string>

#include "trainer/text/chat/jinja/value.h"

namespace muster::jinja {

enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
Value Apply(BinaryOp op, const Value& left, const Value& right, Budget& budget);
Value Negate(const Value& value);

// Whether two keys of dicts are one: scalars only.
bool KeysEqual(const Value& left, const Value& right);
bool Equal(const Value& left, const Value& right, Budget& budget);
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
bool Compare(CompareOp op, const Value& left, const Value& right, Budget& budget);
// left < right; of values that Python orders.
bool Less(const Value& left, const Value& right, Budget& budget);

// left ~ right of all: their texts in a row.
Value Concatenate(const std::vector<Value>& values, Budget& budget);
// The text with < > & ' " as HTML spells them, unless it is safe already.
Text EscapeHtml(const Text& text);

// value[key]: an item, else an attribute; undefined where there is neither.
Value Item(const Value& value, const Value& key);
// The item at a path such as "function.name", as filters take it: each part an item, else an
// attribute; `absent` (null: none) stands for each part that is undefined.
Value ItemByPath(const Value& value, const Value& path, const Value* absent = nullptr);
struct Slice {
  std::optional<std::int64_t> start;
  std::optional<std::int64_t> stop;
  std::int64_t step = 1;
};
Value SliceOf(const Value& value, const Slice& slice, Budget& budget);
// value.name: an attribute or a method, else an item; undefined where there is neither.
Value Attribute(const Value& value, const std::string& name);

// Python's iter() and len(). A generator's items are given once.
std::vector<Value> Items(const Value& value, Budget& budget);
bool IsIterable(const Value& value);
// None where Python has no len for the type.
std::optional<std::int64_t> LengthOf(const Value& value);

}  // namespace muster::jinja
