// A job's curves from its metrics.jsonl (docs/job-file.md): what a restarted coordinator has not
// seen itself.
//
// ReadMetricsFile blocks and belongs on a pool; AddMetricsLine is pure. At most kMetricsBytes of
// the file are read: a larger file is read in equally spaced pieces, and lines that are cut are
// skipped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/history/step_curves.h"

namespace muster {

inline constexpr std::int64_t kMetricsBytes = 16 << 20;

// Ignores a line that is not about a step.
void AddMetricsLine(std::string_view line, StepCurves& curves);

// kNotFound if there is no file.
Result<StepCurves> ReadMetricsFile(const std::string& path, std::int64_t max_bytes = kMetricsBytes);

}  // namespace muster
