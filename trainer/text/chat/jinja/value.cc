#include "trainer/text/chat/jinja/value.h"

#include <algorithm>
#include <limits>

#include "common/base/json.h"
#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/operators.h"

namespace muster::jinja {
namespace {

// With what holds it; too deep is refused here, where it would come to be.
int DepthAbove(int inner) {
  if (inner >= kMaxValueDepth)
    Fail("lists and dicts nest deeper than " + std::to_string(kMaxValueDepth) + " levels");
  return inner + 1;
}

void CheckItems(std::size_t count) {
  if (count > kMaxListItems)
    Fail("a list has more than " + std::to_string(kMaxListItems) + " items");
}

void Put(std::vector<std::pair<Value, Value>>* entries, const Value& key, Value value) {
  for (auto& [known, old] : *entries) {
    if (KeysEqual(known, key)) {
      old = std::move(value);
      return;
    }
  }
  entries->emplace_back(key, std::move(value));
}

bool IsKey(const Value& value) { return value.is_text() || value.is_number() || value.is_none(); }

Value FromJsonAt(const nlohmann::ordered_json& json, const FromJsonOptions& options, int depth) {
  if (depth > kMaxValueDepth)
    Fail("the data nests deeper than " + std::to_string(kMaxValueDepth) + " levels");
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean: return json.get<bool>();
    case nlohmann::ordered_json::value_t::number_integer: return json.get<std::int64_t>();
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        Fail("the number " + std::to_string(number) + " is too large");
      return static_cast<std::int64_t>(number);
    }
    case nlohmann::ordered_json::value_t::number_float: return json.get<double>();
    case nlohmann::ordered_json::value_t::string:
      return Text(json.get_ref<const std::string&>(), options.mark);
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json)
        items.push_back(FromJsonAt(item, {.mark = options.mark, .plain_key = {}}, depth + 1));
      return Value::MakeList(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, value] : json.items()) {
        const bool plain = !options.plain_key.empty() && key == options.plain_key;
        const FromJsonOptions inner{.mark = plain ? kPlain : options.mark, .plain_key = {}};
        entries.emplace_back(Text(key, options.mark), FromJsonAt(value, inner, depth + 1));
      }
      return Value::MakeDict(std::move(entries));
    }
    default: return None{};
  }
}

}  // namespace

Value Value::MakeUndefined(std::string why) {
  Value value;
  value.data_ = std::make_shared<const Undefined>(Undefined{std::move(why)});
  return value;
}

Value Value::MakeList(std::vector<Value> items, ListKind kind) {
  CheckItems(items.size());
  int inner = 0;
  for (const Value& item : items) inner = std::max(inner, DepthOf(item));
  Value value;
  value.data_ = std::make_shared<const List>(
      List{.kind = kind, .items = std::move(items), .given = 0, .depth = DepthAbove(inner)});
  return value;
}

Value Value::MakeDict(std::vector<std::pair<Value, Value>> entries) {
  CheckItems(entries.size());
  Dict dict;
  int inner = 0;
  for (auto& [key, value] : entries) {
    if (!IsKey(key)) Fail("a " + key.TypeName() + " cannot be the key of a dict");
    inner = std::max(inner, DepthOf(value));
    Put(&dict.entries, key, std::move(value));
  }
  dict.depth = DepthAbove(inner);
  Value value;
  value.data_ = std::make_shared<const Dict>(std::move(dict));
  return value;
}

std::int64_t Value::integer() const {
  if (is_boolean()) return boolean() ? 1 : 0;
  return std::get<std::int64_t>(data_);
}

double Value::AsDouble() const { return is_float() ? number() : static_cast<double>(integer()); }

bool Value::IsTrue() const {
  if (is_undefined() || is_none()) return false;
  if (is_boolean()) return boolean();
  if (is_integer()) return integer() != 0;
  if (is_float()) return number() != 0;
  if (is_text()) return !text().empty();
  if (is_list()) return list().kind == ListKind::kGenerator || !list().items.empty();
  if (is_dict()) return !dict().entries.empty();
  return true;
}

std::string Value::TypeName() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_boolean()) return "bool";
  if (is_integer()) return "int";
  if (is_float()) return "float";
  if (is_text()) return "str";
  if (is_dict()) return "dict";
  if (As<Namespace>() != nullptr) return "namespace";
  if (As<const Loop>() != nullptr) return "loop";
  if (As<const Function>() != nullptr) return "function";
  switch (list().kind) {
    case ListKind::kList: return "list";
    case ListKind::kTuple: return "tuple";
    case ListKind::kRange: return "range";
    case ListKind::kView: return "view of a dict";
    case ListKind::kGenerator: return "generator";
  }
  return "list";
}

bool Value::IsSame(const Value& other) const {
  return data_ == other.data_ || (is_text() && other.is_text() && bytes() == other.bytes());
}

int DepthOf(const Value& value) {
  if (value.is_list()) return value.list().depth;
  if (value.is_dict()) return value.dict().depth;
  if (const auto* function = value.As<const Function>()) return function->depth;
  if (const auto* loop = value.As<const Loop>()) return loop->items->depth + 1;
  return value.As<Namespace>() != nullptr ? 1 : 0;
}

void Budget::Spend(std::int64_t steps) {
  steps_left -= steps;
  if (steps_left < 0) Fail("rendering takes too many steps; does a loop of the template not end?");
}

void Budget::SpendFor(const Value& value) {
  if (value.is_text()) {
    Spend(static_cast<std::int64_t>(value.text().size()) / kBytesPerStep);
  } else if (value.is_list()) {
    Spend(static_cast<std::int64_t>(value.list().items.size()));
  } else if (value.is_dict()) {
    Spend(static_cast<std::int64_t>(value.dict().entries.size()));
  }
}

const Value* FindText(const Dict& dict, std::string_view key) {
  for (const auto& [known, value] : dict.entries)
    if (known.is_text() && known.bytes() == key) return &value;
  return nullptr;
}

const Value* FindAttribute(const Namespace& space, const std::string& name) {
  for (const auto& [known, value] : space.attributes)
    if (known == name) return &value;
  return nullptr;
}

void RequireDefined(const Value& value) {
  if (const auto* undefined = value.As<const Undefined>()) Fail(undefined->why);
}

Value FromJson(const nlohmann::ordered_json& json, const FromJsonOptions& options) {
  return FromJsonAt(json, options, 0);
}

}  // namespace muster::jinja
