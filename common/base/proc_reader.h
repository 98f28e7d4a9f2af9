// Readers of /proc: the identity of a process, its descendants, what it was started with.
//
// A pid alone names no process for long; (pid, start time, boot id) does. Reading is not atomic
// over processes, so a caller that ends processes repeats the scan until it finds none. Free
// functions; any thread.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster {

// A process for as long as the machine runs. Signals to it: common/process/process_id.h.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot

  friend auto operator<=>(const ProcessId&, const ProcessId&) = default;
};

struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';              // as in /proc/PID/stat: R, S, D, Z, ...
  std::uint64_t start_time = 0;  // clock ticks since boot
  std::uint64_t cpu_ticks = 0;   // user and system time of all its threads, in clock ticks

  ProcessId id() const { return {pid, start_time}; }
  // Not a zombie, and not about to be one.
  bool runs() const { return state != 'Z' && state != 'X'; }

  friend bool operator==(const ProcessInfo&, const ProcessInfo&) = default;
};

double CpuSeconds(const ProcessInfo& info);

// Parses one line of /proc/PID/stat, whose second field may hold spaces and parentheses.
Result<ProcessInfo> ParseProcessStat(std::string_view line);

// kNotFound once the process is gone.
Result<ProcessInfo> ReadProcess(pid_t pid);

// Every process that /proc shows now.
std::vector<ProcessInfo> ReadProcessTable();

// The living processes (no zombies) below `root`, which itself is left out.
std::vector<ProcessId> LivingDescendants(const std::vector<ProcessInfo>& table, pid_t root);

// Living processes one of whose environment variables begins with `prefix` ("NAME=value..."), as
// far as this user may read them. The caller itself is left out.
std::vector<ProcessId> ProcessesWithEnvironment(const std::string& prefix);

// Differs after every boot; equal for all that share a kernel.
std::string BootId();

}  // namespace muster
