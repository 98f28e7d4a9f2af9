// What verbs that plan have in common: where a job's files are, and what this machine is.
//
// Free functions; they block on the file system, and ThisHost multiplies matrices for a moment.
#pragma once

#include <filesystem>
#include <string>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "trainer/core/model_config.h"
#include "trainer/plan/hardware.h"
#include "trainer/verbs/verbs.h"

namespace muster {

// The job file with --set and what another launcher's configuration says; rank 0 reports on
// standard error what becomes of the latter's keys. kInvalidArgument without a train block.
Result<JobSpec> ReadTrainJob(const TrainOptions& options);

// `path` below the job's working directory, which is relative to the job file.
std::filesystem::path Below(const JobSpec& spec, const std::string& job_file,
                            const std::string& path);

// Reads a model directory, a config.json alone, or a Hub id where no such file is. `named` is
// the job's, or given instead of it and then relative to here.
Result<ModelConfig> ReadShape(const std::filesystem::path& model, const std::string& named);

// This machine's CPU as a rank of the job has it; its peak is measured. The job has a train block.
Hardware ThisHost(const JobSpec& spec);

}  // namespace muster
