// The flags of `muster slurm`. One thread.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/commands/slurm.h"
#include "cli/flags.h"

namespace muster {

// Filled while the command line is parsed.
struct SlurmOptions {
  SlurmSubmitOptions submit;
  SlurmStatusOptions status;
  SlurmAttachOptions attach;
  SlurmRequeueOptions requeue;
  SlurmDoctorOptions doctor;
  SlurmProbeOptions probe;
  std::vector<std::string> behind_dashes;
};

// `output`: the global -o, which the commands that pass options on take themselves.
void AddSlurmCommands(CLI::App& app, std::string& output, SlurmOptions& options, Command& chosen);

// The number of words up to the -- of `muster slurm submit ... -- WORDS`, which are Slurm's and
// are kept in `options`; all words of other command lines.
int TakeSbatchWords(int argc, char** argv, SlurmOptions& options);

}  // namespace muster
