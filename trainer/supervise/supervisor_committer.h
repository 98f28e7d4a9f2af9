// SupervisorCommitter: each shard is reported over the control socket; the coordinator commits, and
// the worker writes the manifest.
#pragma once

#include <memory>

#include "trainer/state/checkpoint/committer.h"
#include "trainer/supervise/supervisor.h"

namespace muster {

// `supervisor` outlives the committer.
std::unique_ptr<CheckpointCommitter> MakeSupervisorCommitter(Supervisor* supervisor);

}  // namespace muster
