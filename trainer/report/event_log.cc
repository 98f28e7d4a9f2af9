#include "trainer/report/event_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error))
    names.push_back(it->path().filename().string());
  return names;
}

double Now() { return static_cast<double>(SystemClock().UnixMillis()) / 1000; }

std::string HostName() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

}  // namespace

std::string EventFileName(const std::vector<std::string>& names, std::int64_t unix_seconds,
                          Generation generation, const std::string& host) {
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix)) continue;
    std::int64_t seconds = 0;
    const char* begin = name.data() + kPrefix.size();
    const auto [end, error] = std::from_chars(begin, name.data() + name.size(), seconds);
    if (error == std::errc() && end != begin) unix_seconds = std::max(unix_seconds, seconds + 1);
  }
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, "%010lld.%lld.", static_cast<long long>(unix_seconds),
                static_cast<long long>(generation));
  return std::string(kPrefix) + numbers + host;
}

Status EventLog::AppendStep(Step step, const std::vector<EventScalar>& scalars) {
  return Append(step, ScalarsEvent(Now(), step, scalars));
}

Status EventLog::AppendScalars(Step after, const std::vector<EventScalar>& scalars) {
  return Append(after + 1, ScalarsEvent(Now(), after, scalars));
}

Status EventLog::AppendText(Step after, const std::string& tag, const std::string& text) {
  return Append(after + 1, TextEvent(Now(), after, tag, text));
}

std::string SampleTag(const std::string& prompt) {
  constexpr std::size_t kLongest = 60;  // bytes of it
  const std::string text = ReplaceInvalidUtf8(prompt);
  std::size_t end = 0;
  while (end < text.size()) {
    const auto length =
        static_cast<std::size_t>(DecodeUtf8(std::string_view(text).substr(end)).length);
    if (end + length > kLongest) break;
    end += length;
  }
  return "samples/" + text.substr(0, end);
}

Status EventLog::Append(Step next, const std::string& event) {
  if (!fd_.valid()) MUSTER_RETURN_IF_ERROR(Begin(next));
  return Write(EventRecord(event));
}

Status EventLog::Begin(Step next) {
  MUSTER_RETURN_IF_ERROR(MakeDirectories(directory_));
  path_ = directory_ + "/" +
          EventFileName(NamesIn(directory_), SystemClock().UnixMillis() / 1000, generation_,
                        HostName());
  fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (!fd_.valid()) return ErrnoStatus(errno, "open " + path_);
  return Write(EventRecord(FileVersionEvent(Now())) + EventRecord(SessionStartEvent(Now(), next)));
}

Status EventLog::Write(const std::string& records) {
  const ssize_t written = ::write(fd_.get(), records.data(), records.size());
  if (written < 0) return ErrnoStatus(errno, "write " + path_);
  if (static_cast<std::size_t>(written) != records.size())
    return ResourceExhausted("the disk is full: " + path_);
  return OkStatus();
}

}  // namespace muster
