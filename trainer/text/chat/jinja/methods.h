// The methods of texts, lists and dicts that templates may call.
#pragma once

#include <optional>
#include <string>

#include "trainer/text/chat/jinja/value.h"

namespace muster::jinja {

// The method bound to its value; none: Python's type has none of that name. One that Python has and
// this does not, or that would change a value, is there and fails when it is called.
std::optional<Value> MethodOf(const Value& value, const std::string& name);

}  // namespace muster::jinja
