// Preflight: makes a node ready for a generation, or reports why it cannot be, before anything
// runs.
//
// Blocks (files), so it runs on the worker's pool. Free functions; any thread.
#pragma once

#include <optional>
#include <string>

#include "common/base/cuda_stack.h"
#include "common/base/status.h"
#include "common/job_spec/job_spec.h"
#include "common/wire/messages.h"
#include "worker/agent/rank_environment.h"

namespace muster::worker {

struct PreflightResult {
  Status status;
  // False: another attempt would fail the same way (a wrong path, a wrong job file).
  bool retryable = false;
  JobSpec spec;                   // when the status is OK
  std::optional<CudaStack> cuda;  // of this node, if a train job requests GPUs that are not fake
};

// Checks paths, programs and the devices that the job has here, claims the output directory for the
// job (<output_dir>/job.json), makes the log directory, and writes spec.yaml and prepare.json below
// `job_dir`.
PreflightResult RunPreflight(const LaunchContext& context, const Prepare& prepare,
                             const std::string& job_dir);

// Puts {"id","name"} into <output_dir>/job.json; kFailedPrecondition if it names another job.
Status ClaimOutputDirectory(const std::string& output_dir, const JobId& job,
                            const std::string& name);

}  // namespace muster::worker
