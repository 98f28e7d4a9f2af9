// Value: what an expression of a template is, with Python's types.
//
// Texts, lists and dicts are shared and never change (transformers' sandbox forbids it too); only
// a namespace has attributes that can be set. A value nests kMaxValueDepth levels at most, so that
// comparing, printing and destroying it cannot exhaust the stack.
//
// Value type, cheap to copy; one thread at a time per template that is rendered.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trainer/text/chat/jinja/text.h"

namespace muster::jinja {

inline constexpr int kMaxValueDepth = 100;
inline constexpr std::size_t kMaxListItems = std::size_t{1} << 20;

class Value;
struct Budget;

struct Undefined {
  std::string why;  // what an operation on it fails with
};
struct None {
  friend bool operator==(None, None) = default;
};

// Which of Python's sequences a list stands for: they compare, print and count differently.
enum class ListKind { kList, kTuple, kRange, kView, kGenerator };

struct List {
  ListKind kind = ListKind::kList;
  std::vector<Value> items;
  // A generator gives each of its items once; shared by all who hold it.
  mutable std::size_t given = 0;
  int depth = 1;
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in the order of insertion
  int depth = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

// What `loop` is within a for.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index = 0;
  int depth0 = 0;
};

// What a call passes.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Function {
  std::string name;
  std::function<Value(const Arguments&, Budget&)> call;
  int depth = 1;  // with what it holds
};

class Value {
 public:
  Value() : data_(std::make_shared<const Undefined>()) {}
  Value(None) : data_(None{}) {}
  Value(bool boolean) : data_(boolean) {}
  Value(std::int64_t integer) : data_(integer) {}
  Value(int integer) : data_(std::int64_t{integer}) {}
  Value(double number) : data_(number) {}
  Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}
  Value(std::string text) : Value(Text(std::move(text))) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<Namespace> attributes) : data_(std::move(attributes)) {}
  Value(std::shared_ptr<const Loop> loop) : data_(std::move(loop)) {}
  Value(Function function) : data_(std::make_shared<const Function>(std::move(function))) {}

  static Value MakeUndefined(std::string why);
  // Throw when there are too many items, or they nest too deeply.
  static Value MakeList(std::vector<Value> items, ListKind kind = ListKind::kList);
  // A later entry with a key that is there already replaces its value.
  static Value MakeDict(std::vector<std::pair<Value, Value>> entries);

  bool is_undefined() const { return Is<std::shared_ptr<const Undefined>>(); }
  bool is_none() const { return Is<None>(); }
  bool is_boolean() const { return Is<bool>(); }
  bool is_integer() const { return Is<std::int64_t>(); }
  bool is_float() const { return Is<double>(); }
  bool is_number() const { return is_boolean() || is_integer() || is_float(); }
  bool is_text() const { return Is<std::shared_ptr<const Text>>(); }
  bool is_list() const { return Is<std::shared_ptr<const List>>(); }
  bool is_list(ListKind kind) const { return is_list() && list().kind == kind; }
  bool is_dict() const { return Is<std::shared_ptr<const Dict>>(); }

  // What few templates have: a Namespace, a const Loop, Function or Undefined; null: it is another.
  template <typename T>
  T* As() const {
    const auto* held = std::get_if<std::shared_ptr<T>>(&data_);
    return held == nullptr ? nullptr : held->get();
  }
  // Preconditions: the kind that each names.
  bool boolean() const { return std::get<bool>(data_); }
  double number() const { return std::get<double>(data_); }
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const std::string& bytes() const { return text().bytes(); }
  const List& list() const { return *std::get<std::shared_ptr<const List>>(data_); }
  const std::shared_ptr<const List>& shared_list() const {
    return std::get<std::shared_ptr<const List>>(data_);
  }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  // The value of an integer, or of a boolean as Python counts them.
  std::int64_t integer() const;
  // The value of any number.
  double AsDouble() const;

  // Python's bool().
  bool IsTrue() const;
  // Python's name of the type: "str", "list", "NoneType".
  std::string TypeName() const;
  // Whether both are one object, Python's `is`.
  bool IsSame(const Value& other) const;

 private:
  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }

  std::variant<std::shared_ptr<const Undefined>, None, bool, std::int64_t, double,
               std::shared_ptr<const Text>, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Loop>,
               std::shared_ptr<const Function>>
      data_;
};

// Levels of lists, dicts and what holds them; 0: a scalar.
int DepthOf(const Value& value);

// Steps that rendering may still take. What computes much spends more than one for it.
struct Budget {
  std::int64_t steps_left = 0;
  // Unix seconds that strftime_now gives; none: the template finds no such function.
  std::optional<std::int64_t> now;

  static constexpr std::int64_t kBytesPerStep = 32;
  void Spend(std::int64_t steps);
  // For reading or making the value: its text or its items.
  void SpendFor(const Value& value);
};

// The entry of the key; null: none.
const Value* FindText(const Dict& dict, std::string_view key);
const Value* FindAttribute(const Namespace& space, const std::string& name);

// Fails with what an operation on an undefined value is answered with; else nothing.
void RequireDefined(const Value& value);

struct FromJsonOptions {
  Mark mark = kPlain;
  // Texts below this key of the outermost object are plain all the same; empty: none.
  std::string_view plain_key = {};
};
Value FromJson(const nlohmann::ordered_json& json, const FromJsonOptions& options = {});

}  // namespace muster::jinja
