// What muster-guardian does as the process of a rank in a container, before it becomes the rank's
// program.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace muster {

// The program's word for it: muster-guardian WORD FILE PROGRAM [ARGUMENTS].
inline constexpr char kRunInContainer[] = "run-in-container";
// And for an attempt at it: muster-guardian WORD FILE PROGRAM [PATHS].
inline constexpr char kCheckContainer[] = "check-container";

// Enters the root that `file` describes and executes the program, which is looked up in there.
// Returns only if that fails.
Status RunInContainer(const std::string& file, const std::vector<std::string>& argv);

// Enters the root, and says whether the program and the other paths are there.
Status CheckContainer(const std::string& file, const std::vector<std::string>& paths);

}  // namespace muster
