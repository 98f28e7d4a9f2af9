// A variable of the environment that switches something on or off, read in one way by all programs.
//
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace muster {

// `value` is what the variable `name` holds; null or empty: it is not set, which is off. On: 1,
// true, yes, on; off: 0, false, no, off; in any case of letters. kInvalidArgument names the
// variable, its value and what it may be.
Result<bool> ReadSwitch(std::string_view name, const char* value);

}  // namespace muster
