// Which versions of etcd may keep a cluster's state.
//
// Pure function; any thread.
#pragma once

#include <string>

#include "common/base/result.h"

namespace muster {

// OK for a version that keeps what it has acknowledged. 3.5.0 to 3.5.5 may lose it in a crash, and
// are refused by name unless `allow_unsafe`; so are those before 3.4, in any case.
Status CheckEtcdVersion(const std::string& version, bool allow_unsafe);

}  // namespace muster
