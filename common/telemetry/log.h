// Logging of the daemons: one line per event, human-readable, to standard error or a file.
//
// Passed where it is needed or fetched with Log(); thread-safe (spdlog). Messages name the job and
// generation they are about: "job 7f3a9c1e2b g2: rank 1 exited with SIGKILL".
//
// Nothing here waits for standard error: a thread writes it (log_writer.h), and lines are dropped
// and counted while it cannot be written. A process that ends, by exit or by a fatal signal, waits
// up to a second until its lines are out.
#pragma once

#include <spdlog/fmt/fmt.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

// Sets the process's logger up; call once in main before any other thread. `level` is one of
// trace, debug, info, warn, error.
void InitLogging(const std::string& program, const std::string& level);

enum class LogLevel { kInfo, kWarning, kError, kCritical };

// The process's logger. A line is formatted in log.cc, once for all callers, because fmt's
// formatting in each source would be a large part of its time to compile.
class Logger {
 public:
  template <typename... Values>
  void log(LogLevel level, fmt::format_string<Values...> text, Values&&... values) const {
    Write(level, text, fmt::make_format_args(values...));
  }
  template <typename... Values>
  void info(fmt::format_string<Values...> text, Values&&... values) const {
    Write(LogLevel::kInfo, text, fmt::make_format_args(values...));
  }
  template <typename... Values>
  void warn(fmt::format_string<Values...> text, Values&&... values) const {
    Write(LogLevel::kWarning, text, fmt::make_format_args(values...));
  }
  template <typename... Values>
  void error(fmt::format_string<Values...> text, Values&&... values) const {
    Write(LogLevel::kError, text, fmt::make_format_args(values...));
  }
  template <typename... Values>
  void critical(fmt::format_string<Values...> text, Values&&... values) const {
    Write(LogLevel::kCritical, text, fmt::make_format_args(values...));
  }

 private:
  static void Write(LogLevel level, fmt::string_view text, fmt::format_args values);
};

inline Logger Log() { return {}; }

// A line as it is, such as what a program says when it fails, behind the lines of the log.
void PrintError(std::string_view line);

// Lines that could not be written since the process began.
std::uint64_t DroppedLogLines();

}  // namespace muster
