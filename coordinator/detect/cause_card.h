// The cause card of an ended attempt: how its first failing rank ended, where it was, and what the
// user can do about a known cause.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/job_spec/job_spec.h"
#include "coordinator/detect/cause_evidence.h"
#include "coordinator/domain/records.h"

namespace muster {

CauseCard BuildCauseCard(const CauseEvidence& evidence, const JobSpec& spec);

// The exception that the last lines of a log end with, by name and with its message: Python's
// "ValueError: no rows", C++'s "std::bad_alloc". Empty if there is none.
std::string ExceptionInLog(const std::vector<std::string>& log_tail);

}  // namespace muster
