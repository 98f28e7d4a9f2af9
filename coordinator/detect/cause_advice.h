// What a user may do about a cause. Part of cause_card.cc; pure.
#pragma once

#include <string>

#include "common/job_spec/job_spec.h"
#include "coordinator/detect/cause_evidence.h"

namespace muster {

// One or a few sentences; empty if nothing helpful is known.
std::string AdviceFor(const CauseEvidence& evidence, const JobSpec& spec);

// Which parts of the job's memory are not sharded, quantised or offloaded, as keys to change.
// `on_device`: the device's memory ran out, not the host's.
std::string MemoryAdvice(const JobSpec& spec, int world_size, bool on_device);

}  // namespace muster
