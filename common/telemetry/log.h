// Logging of the daemons: one line per event, human-readable, to standard error or a file.
//
// Passed where it is needed or fetched with Log(); thread-safe (spdlog). Messages name the job and
// generation they are about: "job 7f3a9c1e2b g2: rank 1 exited with SIGKILL".
//
// Nothing here waits for standard error: a thread writes it (log_writer.h), and lines are dropped
// and counted while it cannot be written. A process that ends, by exit or by a fatal signal, waits
// up to a second until its lines are out.
#pragma once

#include <spdlog/spdlog.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

// Sets the process's logger up; call once in main before any other thread. `level` is one of
// trace, debug, info, warn, error.
void InitLogging(const std::string& program, const std::string& level);

inline spdlog::logger& Log() { return *spdlog::default_logger_raw(); }

// A line as it is, such as what a program says when it fails, behind the lines of the log.
void PrintError(std::string_view line);

// Lines that could not be written since the process began.
std::uint64_t DroppedLogLines();

}  // namespace muster
