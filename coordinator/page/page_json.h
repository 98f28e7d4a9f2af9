// The status page's parts as JSON: what of a record is shown, under which name. docs/status-page.md
// has the keys.
//
// Pure functions; any thread. All text is JSON on one line; what is not UTF-8 in a name or a log is
// replaced, and numbers that nobody knows are null. The page shows strings as text alone, so that
// nothing need be escaped here beyond JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/control/controller.h"
#include "coordinator/history/step_curves.h"
#include "coordinator/history/step_durations.h"

namespace muster {

std::string JsonText(std::string_view text);

// A job as a row of the overview and as the head of its own page.
std::string JobPart(const JobView& view);
std::string NodePart(const NodeView& view);
std::string EventPart(const EventRecord& event);

std::string AttemptPart(const AttemptRecord& attempt);
// `progress`: null where the rank has said nothing yet.
std::string RankPart(const RankRecord& rank, const RankProgress* progress);
// The newest ones that exist, newest first.
std::string CheckpointsPart(const std::vector<CheckpointRecord>& checkpoints);
// [first step, last step, [least, greatest, last] of each curve, or null].
std::string CellPart(const CurveCell& cell);
// {"recent": {...}, "all": {...}} in seconds; null before the first step.
std::string TimesPart(const StepDurations& times);
// Seconds of all ranks together by state, and the share that brought steps: null until there were
// slots.
std::string GoodputPart(const Goodput& goodput);

}  // namespace muster
