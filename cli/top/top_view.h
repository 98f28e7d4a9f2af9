// The views of `muster top` as lines of text: the worst problem in words, then jobs and nodes, or
// the page of one job with its curves and ranks.
//
// Pure; any thread. Text from outside is made printable first.
#pragma once

#include <string>
#include <vector>

#include "cli/base/output.h"
#include "cli/top/text_page.h"
#include "cli/top/top_model.h"

namespace muster {

// At most `rows` lines, none wider than `columns`, without line ends.
std::vector<std::string> OverviewLines(const TopModel& model, const TopViewOptions& options);
// Of `model.open`, which is there.
std::vector<std::string> JobLines(const TopModel& model, const TopViewOptions& options);

// The jobs in the order in which they are listed: what runs first, then what waits, the newest of
// what has ended last.
std::vector<const v1::Job*> JobsInOrder(const TopModel& model);

}  // namespace muster
