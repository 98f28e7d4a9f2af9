// How values are written: as Python's str and repr do, and as JSON as transformers' tojson does.
//
// Pure functions but for the budget.
#pragma once

#include <optional>
#include <string>

#include "trainer/text/chat/jinja/value.h"

namespace muster::jinja {

// str(value): what {{ value }} puts out. Refuses what has no meaning as text: generators, views of
// dicts, functions.
Text ToText(const Value& value, Budget& budget);
// repr of a scalar, for messages; other values by their type.
std::string Repr(const Value& value);
// The shortest digits that give the number back, laid out as Python does.
std::string FloatText(double number);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent = {};  // what a level is indented by; none: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// json.dumps(value). Texts out of the conversation stay marked as such.
Text ToJson(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace muster::jinja
