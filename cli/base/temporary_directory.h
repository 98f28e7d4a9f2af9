// A new directory of this user alone for what a command needs while it runs: `prefix` and six
// characters in TMPDIR, else in /tmp. The caller removes it. The error says how to choose another
// place. Any thread.
#pragma once

#include <string>

#include "common/base/result.h"

namespace muster {

Result<std::string> MakeTemporaryDirectory(const std::string& prefix);

}  // namespace muster
