#include "common/telemetry/log.h"

#include <signal.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "common/base/clock.h"
#include "common/telemetry/log_writer.h"

namespace muster {
namespace {

constexpr char kPattern[] = "%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %n %v";
constexpr auto kDrainLimit = std::chrono::seconds(1);

// Never destroyed: its thread may hang in a write for good.
LogWriter* g_writer = nullptr;

class WriterSink final : public spdlog::sinks::base_sink<std::mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    g_writer->Append({line.data(), line.size()});
  }
  void flush_() override {}
};

LogWriter::DroppedLine DroppedLineOf(const std::string& program) {
  return [program,
          formatter = std::make_shared<spdlog::pattern_formatter>(kPattern)](std::uint64_t lines) {
    const std::string text = std::to_string(lines) +
                             " lines of the log are missing here: standard error did not take them";
    spdlog::memory_buf_t line;
    formatter->format({program, spdlog::level::warn, text}, line);
    return std::string(line.data(), line.size());
  };
}

// What a process logged before it crashes is what explains the crash.
void OnFatalSignal(int signal) {
  g_writer->DrainInSignalHandler(kDrainLimit);
  ::raise(signal);  // its default action by now
}

void DrainAtFatalSignals() {
  struct sigaction drain {};
  drain.sa_handler = OnFatalSignal;
  drain.sa_flags = SA_RESETHAND | SA_NODEFER;
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    // A sanitizer's handler stays.
    if (before.sa_handler == SIG_DFL) ::sigaction(signal, &drain, nullptr);
  }
}

// A text of others must not look like a line of ours, nor command a terminal.
std::string EscapeControls(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      out += "\\n";
    else if ((byte < 0x20 && c != '\t') || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out;
}

}  // namespace

void Logger::Write(LogLevel level, fmt::string_view text, fmt::format_args values) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::info, spdlog::level::warn,
                                                   spdlog::level::err, spdlog::level::critical};
  spdlog::logger& logger = *spdlog::default_logger_raw();
  const auto wanted = kLevels[static_cast<int>(level)];
  if (logger.should_log(wanted)) logger.log(wanted, EscapeControls(fmt::vformat(text, values)));
}

void InitLogging(const std::string& program, const std::string& level) {
  g_writer = new LogWriter(STDERR_FILENO, DroppedLineOf(program));
  auto logger = std::make_shared<spdlog::logger>(program, std::make_shared<WriterSink>());
  logger->set_pattern(kPattern);
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
  DrainAtFatalSignals();
  std::atexit([] { g_writer->Drain(kDrainLimit); });
}

void PrintError(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  if (g_writer != nullptr) {
    g_writer->Append(text);
  } else {
    std::fputs(text.c_str(), stderr);
  }
}

std::uint64_t DroppedLogLines() { return g_writer == nullptr ? 0 : g_writer->dropped(); }

}  // namespace muster
