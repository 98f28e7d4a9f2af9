// `muster slurm`: jobs under Slurm, without a cluster of one's own (docs/slurm.md).
//
// As commands.h says. They run Slurm's commands and read the shared file system, so they are for a
// login node. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "common/slurm/slurm_commands.h"

namespace muster {

struct SlurmSubmitOptions {
  std::string file;
  std::string key;   // empty: a random one
  std::string name;  // empty: the file's
  std::vector<std::string> overrides;
  std::string accelerate_config;
  std::optional<int> spares;  // nothing: the file's
  bool render = false;        // print the script only
  bool wait = false;
  bool attach = false;  // follow the job to its end
  std::string worker;   // empty: beside this program where it is, else by its name in PATH
  std::vector<std::string> worker_arguments;
  std::string apptainer_image;
  std::vector<std::string> apptainer_options;
  int signal_lead_seconds = 180;
  int max_requeues = 100;
  std::vector<std::string> sbatch;  // everything else of the command line
};
CommandResult RunSlurmSubmit(CommandContext& context, const slurm::SlurmCommands& commands,
                             const SlurmSubmitOptions& options);

struct SlurmStatusOptions {
  std::string job;    // empty: all of this user's
  std::string state;  // directory of the supervisors; empty: as submitted
};
CommandResult RunSlurmStatus(CommandContext& context, const slurm::SlurmCommands& commands,
                             const SlurmStatusOptions& options);

struct SlurmAttachOptions {
  std::string job;
  std::string state;  // as of SlurmStatusOptions
};
// Follows the job's progress to its end, from the login node, over takeovers and requeues; its
// result is the exit code.
CommandResult RunSlurmAttach(CommandContext& context, const slurm::SlurmCommands& commands,
                             const SlurmAttachOptions& options);
// The same of a job that is known: `job` as FindSlurmJob takes it.
CommandResult FollowSlurmJob(CommandContext& context, const slurm::SlurmCommands& commands,
                             const std::string& job, const std::string& state_dir);

// Until the job has ended; its result is the exit code.
CommandResult WaitForSlurmJob(CommandContext& context, const slurm::SlurmCommands& commands,
                              std::uint64_t id, const std::string& state_dir);

struct SlurmRequeueOptions {
  std::string job;
  bool now = false;  // without saving first
};
// Saves at the next step, stops, and runs again; a job that has ended runs again at once.
CommandResult RunSlurmRequeue(CommandContext& context, const slurm::SlurmCommands& commands,
                              const SlurmRequeueOptions& options);

// The pilot jobs of the coordinator in --dir, as it has written them down, and why there are no
// more.
CommandResult RunSlurmPilots(CommandContext& context);

struct SlurmDoctorOptions {
  std::string partition;  // empty: the default one
  std::optional<double> checkpoint_seconds;
  int signal_lead_seconds = 180;
  // Nodes to try out by one srun; 0: those of the allocation that this runs in, if any.
  int nodes = 0;
  std::string shared = ".";       // a directory that they are to share
  std::string interface;          // by which they are to reach each other
  std::vector<std::string> srun;  // everything else of the command line
};
// What of the cluster's settings, and of nodes that are tried out, helps or harms; kExitError when
// something fails.
CommandResult RunSlurmDoctor(CommandContext& context, const slurm::SlurmCommands& commands,
                             const SlurmDoctorOptions& options);

struct SlurmProbeOptions {
  std::string dir;
  std::string interface;
};
// On each of the doctor's nodes, started by it: prints what it found out, for the doctor.
CommandResult RunSlurmProbe(CommandContext& context, const SlurmProbeOptions& options);

}  // namespace muster
