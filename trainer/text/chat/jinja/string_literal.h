// The escapes of string literals.
#pragma once

#include <string>
#include <string_view>

namespace muster::jinja {

// What stands between the quotes, as Python's unicode-escape reads it. Throws Error with the line.
std::string Unescaped(std::string_view literal, int line);

}  // namespace muster::jinja
