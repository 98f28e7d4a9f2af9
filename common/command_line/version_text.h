// The output of `--version`: the program, Muster's version, and the commit that it was built from.
//
// The commit comes from git at build time, or from CMake's MUSTER_COMMIT for sources without git's
// files; without either it is left out. Only programs link this, because it changes with every
// commit. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace muster {

// "muster-worker 0.1.0 (commit 0123456789ab)".
std::string VersionText(std::string_view program);

}  // namespace muster
