#include "worker/allocation/node_directory.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <sstream>

#include "common/base/files.h"
#include "common/base/proc_reader.h"
#include "common/process/process_id.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

constexpr int kLookAgainMs = 20;
constexpr Duration kKillGrace = std::chrono::seconds(2);
constexpr Duration kLeftoverGrace = std::chrono::seconds(1);

using Processes = std::set<ProcessId>;

bool HasArgumentIn(pid_t pid, const std::string& dir) {
  const auto text = ReadFile("/proc/" + std::to_string(pid) + "/cmdline", 1 << 20);
  if (!text.ok()) return false;
  std::istringstream arguments(*text);
  for (std::string argument; std::getline(arguments, argument, '\0');)
    if (argument == dir || argument.starts_with(dir + "/")) return true;
  return false;
}

bool IsMusters(pid_t pid) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error);
  return program.filename().string().starts_with("muster-");
}

void AddProcessesOf(const std::string& dir, Processes* found) {
  const auto table = ReadProcessTable();
  for (const ProcessInfo& info : table) {
    if (info.pid == ::getpid() || !info.runs() || !IsMusters(info.pid)) continue;
    if (!HasArgumentIn(info.pid, dir)) continue;
    found->insert(info.id());
    for (const ProcessId& id : LivingDescendants(table, info.pid)) found->insert(id);
  }
}

bool WaitUntilGone(const std::string& dir, Processes* processes, const Deadline& deadline) {
  for (;;) {
    AddProcessesOf(dir, processes);
    std::erase_if(*processes, [](const ProcessId& id) { return !IsAlive(id); });
    if (processes->empty()) return true;
    if (deadline.Expired()) return false;
    (void)::poll(nullptr, 0, kLookAgainMs);
  }
}

bool IsPrivate(const std::string& dir) {
  struct stat found {};
  return ::lstat(dir.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
         found.st_uid == ::geteuid() && (found.st_mode & 077) == 0;
}

}  // namespace

int EndProcessesOf(const std::string& dir, Duration grace) {
  Processes processes;
  AddProcessesOf(dir, &processes);
  // A guardian must end what it started; it knows how long that may take.
  for (const ProcessId& id : processes)
    if (IsMusters(id.pid) && HasArgumentIn(id.pid, dir)) SignalProcess(id, SIGINT);
  if (WaitUntilGone(dir, &processes, Deadline::After(grace))) return 0;
  for (const Deadline deadline = Deadline::After(kKillGrace); !deadline.Expired();) {
    for (const ProcessId& id : processes) SignalProcess(id, SIGKILL);
    if (WaitUntilGone(dir, &processes, Deadline::After(std::chrono::milliseconds(100)))) return 0;
  }
  return static_cast<int>(processes.size());
}

Result<std::string> MakePrivateDirectory(const std::string& wanted) {
  const fs::path path(wanted);
  std::string parent = path.parent_path().string();
  MUSTER_RETURN_IF_ERROR(MakeDirectories(path.parent_path().parent_path().string()));
  if (::mkdir(parent.c_str(), 0700) != 0 && errno != EEXIST)
    return ErrnoStatus(errno, "make " + parent);
  if (!IsPrivate(parent)) {
    parent += "-XXXXXX";
    if (::mkdtemp(parent.data()) == nullptr) return ErrnoStatus(errno, "make " + parent);
  }
  std::string dir = parent + "/" + path.filename().string();
  (void)EndProcessesOf(dir, kLeftoverGrace);
  std::error_code error;
  fs::remove_all(dir, error);
  if (::mkdir(dir.c_str(), 0700) != 0) return ErrnoStatus(errno, "make " + dir);
  return dir;
}

}  // namespace muster::worker
