// The guardian's log: lines with the time of day on standard error, which its starter redirects to
// guardian.log. The guardian links no logging library to stay small.
#pragma once

#include <string>

namespace muster {

void LogLine(const std::string& text);

}  // namespace muster
