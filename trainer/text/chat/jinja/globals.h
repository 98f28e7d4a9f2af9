// The functions that every template finds: range, dict, namespace, raise_exception, strftime_now.
#pragma once

#include "trainer/text/chat/jinja/value.h"

namespace muster::jinja {

// Null: there is no global of that name. strftime_now is there where the budget has a time.
const Value* FindGlobal(const std::string& name, const Budget& budget);

// Fails where the value holds what a namespace must not: a namespace or a function, through which
// it could hold itself.
void CheckAttribute(const std::string& name, const Value& value, Budget& budget);

}  // namespace muster::jinja
