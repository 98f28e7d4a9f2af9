// RunPlan: memory, time and cost of a job on given hardware, whether it fits, and if not, what
// would make it fit. Every suggestion has been planned itself; none is made that does not fit.
//
// Plain values; pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/plan/hardware.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/plan/time_plan.h"

namespace muster {

struct PlanQuestion {
  PlanJob job;
  Hardware hardware;
  std::optional<std::int64_t> rows;  // of the data
  double cost_per_hour = 0;          // of all devices together; 0: not asked
};

struct Suggestion {
  std::string change;             // "train.optimizer.moments: bf16"
  std::int64_t device_bytes = 0;  // of a rank, with it; on a CPU of a host's rank
  double hours_factor = 1;        // how much longer a step then takes
};

struct RunPlan {
  std::int64_t parameters = 0;
  std::int64_t adapter_parameters = 0;  // 0: all weights are trained
  MemoryPlan memory;
  TimePlan time;
  bool device_fits = true;
  bool host_fits = true;
  std::optional<double> cost;
  std::vector<Suggestion> suggestions;  // empty where it fits

  bool fits() const { return device_fits && host_fits; }
};

// kInvalidArgument for a job that cannot be laid out.
Result<RunPlan> PlanRun(const PlanQuestion& question);

// A table for people, GB of 10^9 bytes, and an object for programs.
std::string PlanText(const PlanQuestion& question, const RunPlan& plan);
std::string PlanJson(const PlanQuestion& question, const RunPlan& plan);

}  // namespace muster
