// A job's curves from its metrics.jsonl (docs/job-file.md): what a restarted coordinator has not
// seen itself.
//
// ReadMetricsFile blocks and belongs on a pool; the others are pure. At most kMetricsBytes of
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

// Adds the whole lines of a piece of the file; unless it is the beginning of one, its first line
// may be cut. Returns where the line begins that the end of the piece cuts.
std::size_t AddMetricsPiece(std::string_view piece, bool from_begin, StepCurves& curves);

// kNotFound if there is no file.
Result<StepCurves> ReadMetricsFile(const std::string& path, std::int64_t max_bytes = kMetricsBytes);

}  // namespace muster
