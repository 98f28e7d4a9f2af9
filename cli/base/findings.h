// How a doctor's findings are shown.
//
// One thread.
#pragma once

#include <ostream>
#include <vector>

#include "cli/base/output.h"
#include "common/base/finding.h"

namespace muster {

// For people one line per finding, and below it what to change and the command that does it.
// kExitError where a check fails, else kExitSuccess.
int PrintFindings(std::ostream& out, OutputFormat format, const std::vector<Finding>& findings);

}  // namespace muster
