// The flags of verbs that hand a job file to the coordinator.
//
// Used while the program starts; one thread.
#pragma once

#include <string>
#include <vector>

#include "cli/client/ready_job.h"
#include "cli/commands/command_line.h"

namespace muster::verbs {

// FILE, and what is set instead of the file's keys. `job` outlives the parsing.
void AddJobFileFlags(Flags& flags, JobFileOptions& job);

// The image and the mounts of a container, which outlive the parsing.
void AddContainerFlags(Flags& flags, std::string& image, std::vector<std::string>& mounts);

// The same FILE and flags as words of a command that can be pasted into a shell.
std::string JobFileWords(const JobFileOptions& job);

}  // namespace muster::verbs
