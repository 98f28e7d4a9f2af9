// Readers of /proc: who a process is, who descends from it, what it was started with.
//
// A pid alone names nobody for long; (pid, start time, boot id) does. Reading is not atomic over
// processes, so a caller that ends processes repeats the scan until it finds none. Free functions;
// any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster {

struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';              // as in /proc/PID/stat: R, S, D, Z, ...
  std::uint64_t start_time = 0;  // clock ticks since boot
  std::uint64_t cpu_ticks = 0;   // user and system time of all its threads, in clock ticks

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
std::vector<pid_t> LivingDescendants(const std::vector<ProcessInfo>& table, pid_t root);

// Living processes one of whose environment variables begins with `prefix` ("NAME=value..."), as
// far as this user may read them. The caller itself is left out.
std::vector<pid_t> ProcessesWithEnvironment(const std::string& prefix);

// Differs after every boot; equal for all that share a kernel.
std::string BootId();

}  // namespace muster
