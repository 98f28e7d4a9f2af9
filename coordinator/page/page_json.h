// The status page's parts as JSON: which fields of a record are shown, under which names.
// docs/status-page.md lists the keys.
//
// Pure functions; any thread. All text is JSON on one line; bytes that are not UTF-8 in a name or a
// log are replaced, and unknown numbers are null. The page inserts strings as text only, so that no
// escaping beyond JSON is needed here.
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

// A job as a row of the overview and as the heading of its own page.
std::string JobPart(const JobView& view);
std::string NodePart(const NodeView& view);
// In the order of the tree; null: there is one queue only.
std::string QueuesPart(const QueuesView& queues);
std::string EventPart(const EventRecord& event);

std::string AttemptPart(const AttemptRecord& attempt);
// `progress`: null if the rank has not reported yet.
std::string RankPart(const RankRecord& rank, const RankProgress* progress);
// The newest ones that exist, newest first.
std::string CheckpointsPart(const std::vector<CheckpointRecord>& checkpoints);
// [first step, last step, [least, greatest, last] of each curve, or null].
std::string CellPart(const CurveCell& cell);
// {"recent": {...}, "all": {...}} in seconds; null before the first step.
std::string TimesPart(const StepDurations& times);
// Seconds of all ranks together by state, and the share that produced steps: null until there were
// slots.
std::string GoodputPart(const Goodput& goodput);

}  // namespace muster
