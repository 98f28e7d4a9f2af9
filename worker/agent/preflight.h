// Preflight: makes a node ready for a generation, or reports why it cannot be, before anything
// runs.
//
// Blocks (files), so it runs on the worker's pool. Free functions; any thread.
#pragma once

#include <functional>
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

// What the rights of the job's owner decide.
struct OwnersPart {
  Status status;
  bool retryable = false;
};

// Checks paths and programs, claims the output directory for the job (<output_dir>/job.json), makes
// the log directory, writes what its ranks read below `ranks_dir`, and prepares its container.
OwnersPart PrepareForOwner(const LaunchContext& context, const Prepare& prepare,
                           const std::string& ranks_dir);

// Checks the job's size and the devices that it has here, has the owner's part done, and writes
// spec.yaml and prepare.json below `job_dir`.
PreflightResult RunPreflight(const LaunchContext& context, const Prepare& prepare,
                             const std::string& job_dir,
                             const std::function<OwnersPart()>& prepare_for_owner);

// Puts {"id","name"} into <output_dir>/job.json; kFailedPrecondition if it names another job.
Status ClaimOutputDirectory(const std::string& output_dir, const JobId& job,
                            const std::string& name);

}  // namespace muster::worker
