// What of a cluster's Slurm helps or harms a job that is to survive faults, and what to change.
//
// Pure functions from what `scontrol show config` and its like print to findings for people; any
// thread. docs/slurm.md lists the checks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/finding.h"
#include "common/slurm/slurm_output.h"

namespace muster::slurm {

struct DoctorQuestion {
  Settings config;
  std::map<std::string, Settings> partitions;
  std::string partition;  // the job's; empty: the default one
  // From the request to the commit of a checkpoint; nothing: not known.
  std::optional<double> checkpoint_seconds;
  int signal_lead_seconds = 180;
};
// Judges the cluster's settings, which are the same on a login node and in an allocation.
std::vector<Finding> JudgeSettings(const DoctorQuestion& question);

}  // namespace muster::slurm
