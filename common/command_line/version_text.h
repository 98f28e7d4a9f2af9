// What `--version` says: the program, Muster's version, and the commit that it was built from.
//
// The commit is told by git when it is built, or by MUSTER_COMMIT of CMake for sources without
// git's files; it is left out where neither says it. Only programs link this, for it changes with
// every commit. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace muster {

// "muster-worker 0.1.0 (commit 0123456789ab)".
std::string VersionText(std::string_view program);

}  // namespace muster
