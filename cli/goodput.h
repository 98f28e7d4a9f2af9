// What the time of a job or of the cluster went to, in figures and words; docs/goodput.md.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "cli/output.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

// "93.1 %"; "-" where it has had no slots yet.
std::string GoodputText(const v1::Goodput& goodput);
// Of ranks: "412:03:22", hours, minutes and seconds.
std::string RankTimeText(double seconds);
// What of the time in slots was no step, the most first: "recovery 0:10:01 (3.1 %), idle ...". "-"
// where nothing is to be said.
std::string LostText(const v1::Goodput& goodput);

// "93.1 %; lost to recovery ..."; empty where it has had no slots yet.
std::string GoodputSummary(const v1::Goodput& goodput);

double TotalSeconds(const v1::Goodput& goodput);
double SecondsOf(const v1::Goodput& goodput, std::string_view state);

// Null where a job of an older coordinator has none.
Json GoodputJson(const v1::Goodput& goodput);

}  // namespace muster
