// The exit codes of the muster command, which scripts rely on, and the one mapping to them.
//
// Pure functions; any thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "muster/v1/common.pb.h"

namespace muster {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitBadUsage = 2;
inline constexpr int kExitNotFound = 3;
inline constexpr int kExitNotAllowed = 4;
inline constexpr int kExitUnreachable = 5;
inline constexpr int kExitConflict = 6;
inline constexpr int kExitTimeout = 7;
inline constexpr int kExitCannotBePlaced = 8;
inline constexpr int kExitJobFailed = 10;
inline constexpr int kExitJobCancelled = 11;
inline constexpr int kExitJobSuspended = 12;
inline constexpr int kExitInterrupted = 130;

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
