// A job file as verbs submit it (common/job_spec/job_file.h), with their flags.
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
  // As the file's keys; empty: the file's.
  std::optional<int> priority;
  std::string queue;
  std::string priority_class;
  std::string begin;
  bool hold = false;                // false: the file's
  std::string container;            // the image
  std::vector<std::string> mounts;  // in it; empty: the file's
  std::vector<std::string> overrides;
  std::string accelerate_config;  // of accelerate or DeepSpeed; empty: none
};

using ReadyJob = ResolvedJob;

// `err` gets a line for each key of another launcher's configuration. kInvalidArgument names file,
// line and key.
Result<ReadyJob> PrepareJob(const JobFileOptions& options, std::ostream& err);

// Warns of a model directory and data that are not on this machine. The worker checks again on the
// machine that runs the job.
void WarnOfMissingFiles(const JobSpec& spec, std::ostream& err);

// A random key of 32 hexadecimal digits, for a submit that was given none.
Result<std::string> RandomKey();

}  // namespace muster
