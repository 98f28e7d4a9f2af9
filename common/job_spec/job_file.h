// A job file as it is sent to a coordinator: overrides applied, workdir and begin absolute, checked
// by the parser. `muster submit`, `muster slurm submit` and `muster-worker --auto` use this one.
//
// ReadJobFile blocks (files, standard input); ResolveJob asks for the current directory and the
// time only. Any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"

namespace muster {

struct JobFile {
  std::string text;
  std::string name;    // for messages
  std::string folder;  // which a relative workdir in the text is below; absolute
};

// "-": standard input, whose folder is the current directory. kInvalidArgument for a file that is
// too large to be one.
Result<JobFile> ReadJobFile(const std::string& path);

struct ResolvedJob {
  JobSpec spec;  // with an absolute workdir and begin
  std::string yaml;
  bool relative_begin = false;  // it would begin at another time if it was resolved again
};

// The override that gives a key a text, whatever that holds.
std::string OverrideText(const std::string& key, const std::string& text);

// Overrides for the keys of `container` that are not empty.
std::vector<std::string> ContainerOverrides(const std::string& image,
                                            const std::vector<std::string>& mounts);

// What else is done to the text, after the overrides.
using AmendJob = std::function<Result<std::string>(std::string yaml)>;

// A relative workdir among the overrides is below the current directory, as on any command line.
// kInvalidArgument names file, line and key, or the override.
Result<ResolvedJob> ResolveJob(const JobFile& file, const std::vector<std::string>& overrides,
                               const AmendJob& amend = nullptr);

}  // namespace muster
