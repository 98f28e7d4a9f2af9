// How long a job will take on given hardware: what each step computes and sends, and whether the
// one hides the other.
//
// Rows are taken to be as long as data.max_seq_len. Collectives are rings, as ours and NCCL's: the
// link between two nodes carries what a rank inside a node receives, once. Gathers and reductions
// run beside the products; what takes longer than these is exposed.
//
// Plain values; pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "common/base/result.h"
#include "trainer/plan/hardware.h"
#include "trainer/plan/plan_job.h"

namespace muster {

// Bytes of a step. Rows that travel to experts on other ranks, at even loads, and back are among
// those gathered.
struct Traffic {
  double inside_gathered = 0;  // that a rank receives from ranks of its node
  double inside_reduced = 0;
  double between_gathered = 0;  // that a node receives from others
  double between_reduced = 0;
  double host = 0;  // between a device and its host (cpu_offload), both directions
};

struct TimePlan {
  Traffic traffic;
  std::int64_t tokens = 0;  // of a step, over all ranks
  double compute_seconds = 0;
  double communication_seconds = 0;  // if nothing hid it
  double exposed_seconds = 0;        // of it, that nothing hides
  double optimizer_seconds = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;  // over all ranks
  double mfu = 0;                // of the peak, 0 to 1
  // Tokens of a micro-batch on each rank from which on communication is hidden; 0: there is none.
  std::int64_t hiding_tokens = 0;
  std::optional<std::int64_t> steps;  // nothing: epochs of an unknown number of rows
  std::optional<double> hours;
};

// `rows`: of the data, for a job that counts epochs.
Result<TimePlan> PlanTime(const PlanJob& job, const Hardware& hardware,
                          std::optional<std::int64_t> rows);

}  // namespace muster
