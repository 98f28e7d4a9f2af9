// Texts from a file of JSON lines, for the verbs that take one text or many.
#pragma once

#include <functional>
#include <string>

#include "common/base/status.h"

namespace muster {

// Calls `take` with the string `key` of each object; blank lines are passed over. `file` empty:
// standard input. kNotFound, or kInvalidArgument with file and line for what is no such object.
Status ForEachText(const std::string& file, const std::string& key,
                   const std::function<void(std::string)>& take);

}  // namespace muster
