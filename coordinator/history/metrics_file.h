// A job's curves as its metrics.jsonl has them (docs/job-file.md): what a coordinator that was
// started again has not seen itself.
//
// ReadMetricsFile blocks and belongs on a pool; AddMetricsLine is pure. Whatever the size of the
// file, kMetricsBytes of it are read at most: of a larger one equally spaced pieces, in which lines
// that are cut are skipped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/history/step_curves.h"

namespace muster {

inline constexpr std::int64_t kMetricsBytes = 16 << 20;

// A line that is no step's is ignored.
void AddMetricsLine(std::string_view line, StepCurves& curves);

// kNotFound where there is none.
Result<StepCurves> ReadMetricsFile(const std::string& path, std::int64_t max_bytes = kMetricsBytes);

}  // namespace muster
