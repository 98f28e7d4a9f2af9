// A job's curves from its metrics.jsonl, as a node reads it: in a cluster with users, whose files
// the coordinator does not open, and whose nodes read as the owner's account.
//
// The loop's thread. At most some kMetricsBytes are read, as by ReadMetricsFile
// (coordinator/history/metrics_file.h).
#pragma once

#include <cstdint>
#include <functional>

#include "common/base/result.h"
#include "coordinator/control/views.h"
#include "coordinator/history/step_curves.h"
#include "coordinator/page/log_text.h"

namespace muster {

// Reads from `offset` on, or this many bytes before the end; answers once, within seconds.
using LogSource = std::function<void(const LogLocation& location, int rank, std::int64_t offset,
                                     std::function<void(Result<LogBytes>)>)>;

// `done` is not called where a piece cannot be read.
void ReadMetricsAt(const LogSource& source, LogLocation location,
                   std::function<void(StepCurves)> done);

}  // namespace muster
