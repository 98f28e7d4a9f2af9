// Following a job under Slurm from the login node, over takeovers of its coordinator and over
// requeues.
//
// Blocks until the job ends, or until an interrupt. The result is the job's exit code. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "cli/client/command_context.h"
#include "common/slurm/slurm_commands.h"

namespace muster {

// Shows progress and events. `job` as FindSlurmJob takes it, `state_dir` the directory that its
// supervisors share.
CommandResult FollowSlurmJob(CommandContext& context, const slurm::SlurmCommands& commands,
                             const std::string& job, const std::string& state_dir);

// The same for a job whose directory is looked up where `state_dir` is empty.
CommandResult AttachToSlurmJob(CommandContext& context, const slurm::SlurmCommands& commands,
                               const std::string& job, const std::string& state_dir);

// Waits without showing anything.
CommandResult WaitForSlurmJob(CommandContext& context, const slurm::SlurmCommands& commands,
                              std::uint64_t id, const std::string& state_dir);

}  // namespace muster
