// What the time of a job, or of all slots, was spent on, in figures and words; docs/goodput.md.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "cli/base/output.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

// "93.1 %"; "-" for a job without slots so far.
std::string GoodputText(const v1::Goodput& goodput);
// Of ranks: "412:03:22", hours, minutes and seconds.
std::string RankTimeText(double seconds);
// The time in slots that was not spent on steps, the most first: "recovery 0:10:01 (3.1 %), ...".
// "-" when there is none.
std::string LostText(const v1::Goodput& goodput);

// "93.1 %; lost to recovery ..."; empty for a job without slots so far.
std::string GoodputSummary(const v1::Goodput& goodput);

double TotalSeconds(const v1::Goodput& goodput);
double SecondsOf(const v1::Goodput& goodput, std::string_view state);

// Null without states.
Json GoodputJson(const v1::Goodput& goodput);

}  // namespace muster
