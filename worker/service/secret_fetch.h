// Fetches the secrets of a job's ranks from the coordinator, for a generation that this node runs.
//
// Blocks for the coordinator, for kFetchLimit at most, and for small files; any thread.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "worker/process/secret_file.h"
#include "worker/service/coordinator_session.h"

namespace muster::worker {

inline constexpr Duration kFetchLimit = std::chrono::seconds(20);

// On a connection of its own, as the session's: `options` says where and by what.
Result<RankSecrets> FetchSecretsOf(const CoordinatorSessionOptions& options, const JobId& job,
                                   Generation generation);

}  // namespace muster::worker
