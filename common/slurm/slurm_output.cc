#include "common/slurm/slurm_output.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>

namespace muster::slurm {
namespace {

constexpr char kAskAgain[] =
    "; see whether slurmctld is up (scontrol ping), and say it again when it answers";

// In the order of JobInfo's members, but comment last: it is the one text that users write freely.
constexpr const char* kJobFields[] = {"%A", "%i", "%j", "%u", "%T", "%r",
                                      "%N", "%D", "%B", "%S", "%e", "%k"};
constexpr std::size_t kJobFieldCount = std::size(kJobFields);

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

template <typename T>
std::optional<T> WholeNumber(std::string_view text) {
  T number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size())
    return std::nullopt;
  return number;
}

// Slurm's words for nothing.
std::string OrEmpty(std::string_view text) {
  for (const std::string_view nothing : {"(null)", "N/A", "n/a", "None", "NONE"})
    if (text == nothing) return "";
  return std::string(text);
}

// "KEY=VALUE KEY=VALUE": values hold blanks at times, but no key that is asked for comes behind
// one of them a second time.
Settings KeysOf(std::string_view line) {
  Settings settings;
  for (const std::string_view word : Split(line, ' ')) {
    const std::size_t equals = word.find('=');
    if (equals != std::string_view::npos && equals > 0)
      settings.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  return settings;
}

std::string ValueOf(const Settings& settings, const std::string& key) {
  const auto found = settings.find(key);
  return found == settings.end() ? "" : OrEmpty(found->second);
}

std::optional<JobInfo> ParseJob(std::string_view line) {
  const std::vector<std::string_view> fields = Split(line, kFieldSeparator);
  if (fields.size() < kJobFieldCount) return std::nullopt;
  JobInfo job;
  job.id = WholeNumber<std::uint64_t>(Trimmed(fields[0])).value_or(0);
  if (job.id == 0) return std::nullopt;
  job.shown_id = fields[1];
  job.name = fields[2];
  job.user = fields[3];
  job.state = fields[4];
  job.reason = OrEmpty(fields[5]);
  job.nodes = OrEmpty(fields[6]);
  job.node_count = WholeNumber<int>(fields[7]).value_or(0);
  job.batch_host = OrEmpty(fields[8]);
  job.start_unix_seconds = ParseTime(fields[9]);
  job.end_unix_seconds = ParseTime(fields[10]);
  job.comment = OrEmpty(fields[11]);
  return job;
}

bool HasAny(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&text](const char* word) { return text.find(word) != std::string::npos; });
}

}  // namespace

std::string JobListFormat() {
  std::string format;
  for (const char* field : kJobFields) {
    if (!format.empty()) format += kFieldSeparator;
    format += field;
  }
  return format;
}

std::vector<JobInfo> ParseJobList(std::string_view output) {
  std::vector<JobInfo> jobs;
  for (const std::string_view line : Split(output, '\n'))
    if (auto job = ParseJob(line)) jobs.push_back(*std::move(job));
  return jobs;
}

bool IsFinalState(std::string_view state) {
  static constexpr std::string_view kFinal[] = {
      "BOOT_FAIL", "CANCELLED", "COMPLETED",     "DEADLINE", "FAILED",
      "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "REVOKED",  "TIMEOUT"};
  return std::find(std::begin(kFinal), std::end(kFinal), state) != std::end(kFinal);
}

Result<JobDetails> ParseJobDetails(std::string_view output) {
  for (const std::string_view line : Split(output, '\n')) {
    if (!line.starts_with("JobId=")) continue;
    const Settings keys = KeysOf(line);
    JobDetails job;
    job.id = WholeNumber<std::uint64_t>(ValueOf(keys, "JobId")).value_or(0);
    if (job.id == 0) break;
    job.name = ValueOf(keys, "JobName");
    job.state = ValueOf(keys, "JobState");
    job.restarts = WholeNumber<int>(ValueOf(keys, "Restarts")).value_or(0);
    job.may_requeue = ValueOf(keys, "Requeue") == "1" && ValueOf(keys, "BatchFlag") != "0";
    job.batch_host = ValueOf(keys, "BatchHost");
    job.nodes = ValueOf(keys, "NodeList");
    job.excluded = ValueOf(keys, "ExcNodeList");
    job.exclusive = ValueOf(keys, "OverSubscribe") == "NO";
    job.end_unix_seconds = ParseTime(ValueOf(keys, "EndTime"));
    job.time_limit_seconds = ParseSpan(ValueOf(keys, "TimeLimit"));
    return job;
  }
  return Internal("scontrol show job printed no line JobId=...: '" +
                  std::string(output.substr(0, 200)) + "'");
}

Settings ParseConfig(std::string_view output) {
  Settings settings;
  for (const std::string_view line : Split(output, '\n')) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view key = Trimmed(line.substr(0, equals));
    if (!key.empty() && key.find(' ') == std::string_view::npos)
      settings.emplace(key, Trimmed(line.substr(equals + 1)));
  }
  return settings;
}

std::map<std::string, Settings> ParsePartitions(std::string_view output) {
  std::map<std::string, Settings> partitions;
  for (const std::string_view line : Split(output, '\n')) {
    if (!line.starts_with("PartitionName=")) continue;
    Settings keys = KeysOf(line);
    const std::string name = keys["PartitionName"];
    partitions.emplace(name, std::move(keys));
  }
  return partitions;
}

Result<std::uint64_t> ParseSubmitted(std::string_view output) {
  for (const std::string_view line : Split(output, '\n')) {
    const std::string_view id = Trimmed(line.substr(0, line.find(';')));
    if (const auto number = WholeNumber<std::uint64_t>(id); number && *number > 0) return *number;
  }
  return Internal("sbatch --parsable printed no job id: '" + std::string(output.substr(0, 200)) +
                  "'");
}

std::optional<std::int64_t> ParseTime(std::string_view text) {
  // Each field's place, its digits, and what stands behind it.
  static constexpr std::array<std::pair<std::size_t, std::size_t>, 6> kPlaces = {
      {{0, 4}, {5, 2}, {8, 2}, {11, 2}, {14, 2}, {17, 2}}};
  if (text.size() != 19 || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' ||
      text[16] != ':')
    return std::nullopt;
  std::array<int, 6> values{};
  for (std::size_t i = 0; i < kPlaces.size(); ++i) {
    const auto value = WholeNumber<int>(text.substr(kPlaces[i].first, kPlaces[i].second));
    if (!value) return std::nullopt;
    values[i] = *value;
  }
  std::tm time{};
  time.tm_year = values[0] - 1900;
  time.tm_mon = values[1] - 1;
  time.tm_mday = values[2];
  time.tm_hour = values[3];
  time.tm_min = values[4];
  time.tm_sec = values[5];
  return ::timegm(&time);
}

std::optional<std::int64_t> ParseSpan(std::string_view text) {
  text = Trimmed(text);
  if (const std::size_t unit = text.find(' '); unit != std::string_view::npos) {
    const auto count = WholeNumber<std::int64_t>(text.substr(0, unit));
    const std::string_view word = text.substr(unit + 1);
    const std::int64_t scale = word.starts_with("sec") ? 1 : word.starts_with("min") ? 60 : 0;
    if (!count || scale == 0) return std::nullopt;
    return *count * scale;
  }
  std::int64_t days = 0;
  const std::size_t dash = text.find('-');
  if (dash != std::string_view::npos) {
    const auto count = WholeNumber<std::int64_t>(text.substr(0, dash));
    if (!count || *count < 0) return std::nullopt;
    days = *count;
    text.remove_prefix(dash + 1);
  }
  std::vector<std::int64_t> parts;
  for (const std::string_view part : Split(text, ':')) {
    const auto count = WholeNumber<std::int64_t>(part);
    if (!count || *count < 0) return std::nullopt;
    parts.push_back(*count);
  }
  if (parts.size() > 3) return std::nullopt;
  // Behind days the first part is hours, otherwise the last one is seconds.
  while (dash != std::string_view::npos && parts.size() < 3) parts.push_back(0);
  std::int64_t seconds = 0;
  for (const std::int64_t part : parts) seconds = seconds * 60 + part;
  return days * 86400 + seconds;
}

std::optional<SlurmVersion> ParseVersion(std::string_view text) {
  const std::size_t begin = text.find_first_of("0123456789");
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin);
  const std::vector<std::string_view> parts = Split(text, '.');
  if (parts.size() < 2) return std::nullopt;
  const auto year = WholeNumber<int>(parts[0]);
  const auto month = WholeNumber<int>(parts[1].substr(0, 2));
  if (!year || !month) return std::nullopt;
  return SlurmVersion{*year, *month};
}

double TermGraceSeconds(std::int64_t kill_wait_seconds) {
  const auto wait = static_cast<double>(kill_wait_seconds);
  return std::max(wait - std::min(5.0, wait / 3), 1.0);
}

Status CommandFailure(const std::string& command, const std::string& output) {
  const std::string said{Trimmed(std::string_view(output).substr(0, 1000))};
  const std::string message = command + " failed: " + (said.empty() ? "it said nothing" : said);
  if (HasAny(said, {"Socket timed out", "Zero Bytes were transmitted"}))
    return DeadlineExceeded(message + kAskAgain);
  if (HasAny(said, {"Unable to contact slurm controller", "Connection refused",
                    "Could not establish a configuration source", "Communication connection"}))
    return Unavailable(message + kAskAgain);
  if (HasAny(said, {"Invalid job id", "Invalid job array"})) return NotFound(message);
  if (HasAny(said, {"Access/permission denied", "access denied", "Permission denied"}))
    return PermissionDenied(message);
  return FailedPrecondition(message);
}

}  // namespace muster::slurm
