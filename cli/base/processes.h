// Processes of a local cluster: starting daemons, knowing them again, ending them.
//
// Free functions; any thread; some block up to their deadline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/process/process_id.h"

namespace muster {

// Starts a program in a session of its own, standard input from /dev/null or the descriptor
// `input`, output appended to `log`, nothing else inherited.
Result<ProcessId> StartDaemon(const std::vector<std::string>& argv, const std::string& log,
                              int input = -1);

// Waits until none of them lives; the ones that still do at the deadline. Our own children are
// reaped.
std::vector<ProcessId> WaitUntilGone(std::vector<ProcessId> ids, Deadline deadline);

// The pid in a file that its owner keeps locked (flock) while it lives; nothing when no one does.
std::optional<ProcessId> LockedPidFileOwner(const std::string& path);

// Every living descendant of `root`, which is not among them.
std::vector<ProcessId> Descendants(const ProcessId& root);

// Muster's own programs (not the CLI), and etcd, with `dir` or a path below it among their
// arguments.
struct NamedProcess {
  ProcessId id;
  std::string program;
};
std::vector<NamedProcess> ProcessesOfDirectory(const std::string& dir);

// "NAME=value" of each variable, for a child that is to have the same.
std::vector<std::string> OwnEnvironment();

// The directory that holds our own binary.
Result<std::string> OwnBinaryDirectory();

// The size of a file; 0 when it does not exist.
std::int64_t SizeOfFile(const std::string& path);

// The last `lines` lines of what lies behind `offset` in a file, at most 16 KiB; empty when it
// cannot be read.
std::vector<std::string> TailOfFile(const std::string& path, std::size_t lines,
                                    std::int64_t offset = 0);

}  // namespace muster
