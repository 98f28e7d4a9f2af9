// The timeline of a job as `muster describe` tells it: what it is, how far it is, and for each
// attempt who failed, how, what was done, how long each part took and what was lost.
//
// Pure; any thread.
#pragma once

#include <string>

#include "muster/v1/client_api.pb.h"

namespace muster {

// `dir` is the cluster's directory, for the commands it suggests; `now_unix_ms` dates what is still
// going on.
std::string FormatTimeline(const v1::Job& job, const std::string& dir, std::int64_t now_unix_ms);

// "training again 0.71 s after the fault: detected in 0.01 s, ..."; empty when no stage is known.
std::string FormatStages(const v1::StageSeconds& seconds);

}  // namespace muster
