// The command line of `muster-worker --auto`: one supervisor per node of a Slurm step.
#pragma once

#include <string>

namespace muster::worker {

// Whether the command line requests it.
bool WantsAuto(int argc, char** argv);

// Parses, supervises, and returns the task's exit code; `binary_dir` contains the programs.
// Exceptions are the caller's.
int RunAuto(int argc, char** argv, const std::string& binary_dir);

}  // namespace muster::worker
