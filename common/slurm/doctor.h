// What of a cluster's Slurm helps or harms a job that is to survive faults, and what to change.
//
// Pure functions from what `scontrol show config` and its like print, and from what each node of an
// allocation found out about itself, to findings for people; any thread. docs/slurm.md lists the
// checks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/slurm/slurm_output.h"

namespace muster::slurm {

enum class Verdict { kOk, kWarn, kFail };

struct Finding {
  std::string check;  // a short name that stays: "requeue-delay"
  Verdict verdict = Verdict::kOk;
  std::string what;    // what is so, and why it matters
  std::string change;  // what to do about it; empty where nothing has to be done

  friend bool operator==(const Finding&, const Finding&) = default;
};

struct DoctorQuestion {
  Settings config;
  std::map<std::string, Settings> partitions;
  std::string partition;  // the job's; empty: the default one
  // From the request to the commit of a checkpoint; nothing: not known.
  std::optional<double> checkpoint_seconds;
  int signal_lead_seconds = 180;
};
// Of the cluster's settings: they say the same on a login node and in an allocation.
std::vector<Finding> JudgeSettings(const DoctorQuestion& question);

// What one node of an allocation says of itself. `muster slurm probe` prints it.
struct NodeProbe {
  std::string node;
  std::string address;                   // numeric, by which others were asked to reach it
  std::int64_t unix_millis = 0;          // its clock, when the one that asks said now
  std::int64_t asked_unix_millis = 0;    // that clock
  std::optional<int> slurm_gpus;         // SLURM_GPUS_ON_NODE
  std::optional<int> visible_gpus;       // CUDA_VISIBLE_DEVICES
  int device_files = 0;                  // /dev/nvidia[0-9]* that can be opened
  int usable_cpus = 0;                   // its affinity
  int slurm_cpus = 0;                    // SLURM_CPUS_ON_NODE
  std::string shared_error;              // of the shared directory; empty: it works
  std::vector<std::string> unreachable;  // nodes that it could not connect to
};
// `expected`: the allocation's nodes; one without a probe is a failure of its own.
std::vector<Finding> JudgeNodes(const std::vector<std::string>& expected,
                                const std::vector<NodeProbe>& probes);

}  // namespace muster::slurm
