// The filters and tests of templates: value|name(arguments), and value is name(arguments).
//
// Pure functions but for the budget. tojson is transformers' own, all others are Jinja2's.
#pragma once

#include <string>
#include <string_view>

#include "trainer/text/chat/jinja/value.h"

namespace muster::jinja {

// Null: there is none of that name here. For the parser, so that a template that needs one which is
// missing is refused before anything is rendered.
using Filter = Value (*)(const Value& input, const Arguments& arguments, Budget& budget);
Filter FindFilter(std::string_view name);
using Test = bool (*)(const Value& input, const Arguments& arguments, Budget& budget);
Test FindTest(std::string_view name);

// The same, for names that are values. Throws where there is none.
Value CallFilter(const Value& name, const Value& input, const Arguments& arguments, Budget& budget);
bool CallTest(const Value& name, const Value& input, const Arguments& arguments, Budget& budget);

}  // namespace muster::jinja
