// Why a job waits and what would start it, as `muster explain` and `muster plan` print it: JSON
// (docs/job-file.md) and text.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "cli/base/output.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

Json ExplanationJson(const v1::ExplainJobResponse& answer);

// For a job in the cluster.
std::string ExplanationText(const v1::ExplainJobResponse& answer);
// For a job file that is not submitted.
std::string PlacementText(const v1::ExplainJobResponse& answer);

}  // namespace muster
