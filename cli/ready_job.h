// A job file as commands of the CLI submit it (common/job_spec/job_file.h), with their flags.
//
// Blocks (files, standard input); one thread.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/job_file.h"

namespace muster {

struct JobFileOptions {
  std::string file;  // "-": standard input
  std::string name;  // empty: the file's
  std::optional<int> priority;
  std::vector<std::string> overrides;
  std::string accelerate_config;  // of accelerate or DeepSpeed; empty: none
};

using ReadyJob = ResolvedJob;

// What becomes of the keys of another launcher's configuration goes to `err`. kInvalidArgument
// names file, line and key.
Result<ReadyJob> PrepareJob(const JobFileOptions& options, std::ostream& err);

// Warns of a model's directory and data that are not on this machine. Only a hint: the worker's own
// check decides, on the machine where the job will run.
void WarnOfMissingFiles(const JobSpec& spec, std::ostream& err);

// A random key of 32 hexadecimal digits, for a submit that was given none.
Result<std::string> RandomKey();

}  // namespace muster
