// Logging of the daemons: one line per event, human-readable, to standard error or a file.
//
// Passed where it is needed or fetched with Log(); thread-safe (spdlog). Messages name the job and
// generation they are about: "job 7f3a9c1e2b g2: rank 1 exited with SIGKILL".
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace muster {

// Sets the process's logger up; call once in main before any other thread. `level` is one of
// trace, debug, info, warn, error.
void InitLogging(const std::string& program, const std::string& level);

inline spdlog::logger& Log() { return *spdlog::default_logger_raw(); }

}  // namespace muster
