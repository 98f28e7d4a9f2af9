// Settings that the job file may have but that change nothing where this job runs, each as a
// sentence, so that no user takes them for the cause of an observation.
//
// Pure.
#pragma once

#include <string>
#include <vector>

#include "common/job_spec/job_spec.h"
#include "trainer/comm/rank_env.h"

namespace muster {

std::vector<std::string> StartNotes(const JobSpec& spec, const RankEnv& env);

}  // namespace muster
