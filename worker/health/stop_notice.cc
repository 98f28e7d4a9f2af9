#include "worker/health/stop_notice.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "common/base/files.h"
#include "common/process/run_child.h"

namespace muster::worker {
namespace {

constexpr std::chrono::seconds kCommandLimit{10};
constexpr std::string_view kBlanks = " \t\r\n";
constexpr double kYear = 365 * 24 * 3600.0;

std::optional<NodeNotice> CheckFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  // A file that cannot be read is a notice because it exists.
  const auto text = ReadFile(path, 4096);
  return NodeNotice{.kind = NodeNoticeKind::kDrain,
                    .detail = "the stop notice " + path + " has appeared",
                    .deadline_seconds = text.ok() ? ParseNoticeSeconds(*text) : 0};
}

std::optional<NodeNotice> CheckCommand(const std::vector<std::string>& argv, int cancel_fd) {
  RunChildOptions options{.spawn = {.argv = argv, .working_directory = "/"},
                          .limit = kCommandLimit,
                          .cancel_fd = cancel_fd};
  for (char** variable = environ; *variable != nullptr; ++variable)
    options.spawn.environment.push_back(*variable);
  const char* path = std::getenv("PATH");
  auto program = FindProgram(argv.front(), path != nullptr ? path : "/usr/bin:/bin", "/");
  if (!program.ok()) return std::nullopt;
  options.spawn.argv.front() = *std::move(program);
  const auto outcome = RunChild(options);
  if (!outcome.ok() || !outcome->ok()) return std::nullopt;
  return NodeNotice{.kind = NodeNoticeKind::kDrain,
                    .detail = "the stop notice command " + argv.front() + " says so",
                    .deadline_seconds = ParseNoticeSeconds(outcome->output)};
}

}  // namespace

std::optional<NodeNotice> CheckStopNotice(const StopNoticeOptions& options, int cancel_fd) {
  std::optional<NodeNotice> notice;
  if (!options.file.empty()) notice = CheckFile(options.file);
  if (!notice && !options.command.empty()) notice = CheckCommand(options.command, cancel_fd);
  return notice;
}

double ParseNoticeSeconds(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return 0;
  text = text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  // More than a year is another format: a Unix time, say.
  return whole && seconds > 0 && seconds <= kYear ? seconds : 0;
}

std::vector<std::string> SplitWords(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = text.find_first_not_of(kBlanks); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

}  // namespace muster::worker
