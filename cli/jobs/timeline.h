// The history of a job as `muster describe` prints it: its state and progress, and for each attempt
// the failure, the recovery with its duration, and the steps that were lost.
//
// Pure; any thread.
#pragma once

#include <string>

#include "common/job_spec/job_spec.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

// `cluster` is the flags that name the cluster in the commands that the text suggests
// (SameCluster()); `now_unix_ms` is the end of what still runs.
std::string FormatTimeline(const v1::Job& job, const std::string& cluster,
                           std::int64_t now_unix_ms);

// "image:1, with /data at /d (read-only), /rows"; empty: the ranks run in none.
std::string ContainerText(const ContainerSpec& container);

// "training again 0.71 s after the fault: detected in 0.01 s, ..."; empty when no stage is known.
std::string FormatStages(const v1::StageSeconds& seconds);

}  // namespace muster
