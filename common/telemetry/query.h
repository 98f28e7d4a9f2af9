// The query of a request: "a=b&c=d". Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

// The value of the first field of the name, its escapes (%2F) resolved; none: it is not there.
std::optional<std::string> QueryValue(std::string_view query, std::string_view name);

}  // namespace muster
