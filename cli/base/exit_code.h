// The exit codes of the muster command, which scripts rely on, and the one mapping to them.
//
// Pure functions; any thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "muster/v1/common.pb.h"

namespace muster {

inline constexpr int kExitSuccess = 0;         // done, or the job succeeded
inline constexpr int kExitError = 1;           // another failure; of a check: it found something
inline constexpr int kExitBadUsage = 2;        // a wrong command line or a bad job file
inline constexpr int kExitNotFound = 3;        // there is no such job, node, queue or file
inline constexpr int kExitNotAllowed = 4;      // the caller may not do this
inline constexpr int kExitUnreachable = 5;     // the coordinator cannot be reached
inline constexpr int kExitConflict = 6;        // the state is another one than the command supposes
inline constexpr int kExitTimeout = 7;         // it took longer than the time that was given
inline constexpr int kExitCannotBePlaced = 8;  // no node could hold it, or the coordinator is full
inline constexpr int kExitJobFailed = 10;      // the job failed
inline constexpr int kExitJobCancelled = 11;   // the job was cancelled
inline constexpr int kExitJobSuspended = 12;   // its user has suspended the job (under Slurm)
inline constexpr int kExitInterrupted = 130;   // interrupted by Ctrl-C

int ExitCodeOf(const Status& status);

// The exit code for a job in a terminal state: how `wait`, `attach` and `submit --wait` end. A
// suspended one is 12, with which an allocation ends whose job its user has suspended.
int ExitCodeOf(v1::JobState state);
bool IsTerminal(v1::JobState state);

// A path or name as one word of a command that the user can paste into a shell.
std::string ShellWord(const std::string& text);

// What the user can type next, or nothing. `dir` is the cluster's directory.
std::string NextCommand(const Status& status, const std::string& dir);

}  // namespace muster
