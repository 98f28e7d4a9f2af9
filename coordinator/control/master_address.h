// The address at which the ranks of a gang find rank 0.
//
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/domain/records.h"

namespace muster {

// Whether `address` reaches only processes of the same host: 127.0.0.0/8, ::1, localhost.
bool IsLoopback(std::string_view address);

// The address of nodes[0], which hosts rank 0. A loopback address is never given to a node of
// another host: the result is then kFailedPrecondition, which names both and what to do.
Result<std::string> ChooseMasterAddress(const std::vector<const NodeRecord*>& nodes);

}  // namespace muster
