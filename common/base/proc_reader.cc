#include "common/base/proc_reader.h"

#include <dirent.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <memory>
#include <unordered_map>

#include "common/base/files.h"

namespace muster {
namespace {

std::vector<pid_t> ListPids() {
  std::vector<pid_t> pids;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc"), ::closedir);
  if (!directory) return pids;
  while (const dirent* entry = ::readdir(directory.get())) {
    char* end = nullptr;
    const long pid = std::strtol(entry->d_name, &end, 10);
    if (pid > 0 && *end == '\0') pids.push_back(static_cast<pid_t>(pid));
  }
  return pids;
}

// Fields of /proc/PID/stat after the name, which is field 2 and ends with the last ')'.
std::vector<std::string_view> FieldsAfterName(std::string_view line) {
  std::vector<std::string_view> fields;
  const std::size_t close = line.rfind(')');
  if (close == std::string_view::npos) return fields;
  std::string_view rest = line.substr(close + 1);
  while (!rest.empty()) {
    const std::size_t begin = rest.find_first_not_of(" \n");
    if (begin == std::string_view::npos) break;
    const std::size_t end = rest.find_first_of(" \n", begin);
    fields.push_back(rest.substr(begin, end - begin));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end);
  }
  return fields;
}

template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

bool HasVariable(std::string_view environment, std::string_view prefix) {
  for (std::size_t at = 0; at < environment.size();) {
    const std::size_t end = environment.find('\0', at);
    if (environment.substr(at, end - at).starts_with(prefix)) return true;
    if (end == std::string_view::npos) break;
    at = end + 1;
  }
  return false;
}

}  // namespace

double CpuSeconds(const ProcessInfo& info) {
  static const double ticks_per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return static_cast<double>(info.cpu_ticks) / ticks_per_second;
}

Result<ProcessInfo> ParseProcessStat(std::string_view line) {
  ProcessInfo info;
  // Counted from field 3, the state: parent is field 4, user and system time fields 14 and 15,
  // start time field 22.
  constexpr std::size_t kState = 0, kParent = 1, kUser = 11, kSystem = 12, kStartTime = 19;
  std::uint64_t user = 0, system = 0;
  const std::vector<std::string_view> fields = FieldsAfterName(line);
  if (fields.size() <= kStartTime || !ParseNumber(line.substr(0, line.find(' ')), &info.pid) ||
      !ParseNumber(fields[kParent], &info.parent) || !ParseNumber(fields[kUser], &user) ||
      !ParseNumber(fields[kSystem], &system) || !ParseNumber(fields[kStartTime], &info.start_time))
    return DataLoss("a line of /proc/PID/stat has another form than expected");
  info.state = fields[kState].front();
  info.cpu_ticks = user + system;
  return info;
}

Result<ProcessInfo> ReadProcess(pid_t pid) {
  const auto line = ReadFile("/proc/" + std::to_string(pid) + "/stat", 1 << 16);
  if (!line.ok()) return NotFound("process " + std::to_string(pid) + " is gone");
  return ParseProcessStat(*line);
}

std::vector<ProcessInfo> ReadProcessTable() {
  std::vector<ProcessInfo> table;
  for (const pid_t pid : ListPids())
    if (auto info = ReadProcess(pid); info.ok()) table.push_back(*info);
  return table;
}

std::vector<ProcessId> LivingDescendants(const std::vector<ProcessInfo>& table, pid_t root) {
  std::unordered_multimap<pid_t, const ProcessInfo*> children;
  for (const ProcessInfo& info : table) children.emplace(info.parent, &info);
  std::vector<ProcessId> found;
  std::vector<pid_t> frontier = {root};
  while (!frontier.empty()) {
    const pid_t parent = frontier.back();
    frontier.pop_back();
    const auto [begin, end] = children.equal_range(parent);
    for (auto it = begin; it != end; ++it) {
      if (it->second->pid == parent) continue;
      frontier.push_back(it->second->pid);
      if (it->second->runs()) found.push_back(it->second->id());
    }
  }
  return found;
}

std::vector<ProcessId> ProcessesWithEnvironment(const std::string& prefix) {
  std::vector<ProcessId> found;
  for (const pid_t pid : ListPids()) {
    if (pid == ::getpid()) continue;
    // Before its environment: what is found is then never a later process of the same number.
    const auto info = ReadProcess(pid);
    if (!info.ok()) continue;
    const auto environment = ReadFile("/proc/" + std::to_string(pid) + "/environ", 4 << 20);
    if (environment.ok() && HasVariable(*environment, prefix)) found.push_back(info->id());
  }
  return found;
}

std::string BootId() {
  auto id = ReadFile("/proc/sys/kernel/random/boot_id", 256);
  if (!id.ok()) return "unknown";
  while (!id->empty() && id->back() == '\n') id->pop_back();
  return *id;
}

}  // namespace muster
