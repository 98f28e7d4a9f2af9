// What the job file says, as the engine's options.
#pragma once

#include "common/job_spec/job_spec.h"
#include "trainer/comm/rank_env.h"
#include "trainer/fsdp/fsdp_engine.h"

namespace muster {

// Without the callbacks and the tracer, which are the trainer's.
FsdpOptions MakeEngineOptions(const TrainSpec& train, const RankEnv& env);

}  // namespace muster
