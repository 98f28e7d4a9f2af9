#include "cli/base/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <sstream>

#include "common/base/files.h"
#include "common/base/proc_reader.h"
#include "common/process/spawn.h"

extern char** environ;

namespace muster {
namespace {

namespace fs = std::filesystem;

// Reaps our own child; harmless for any other process.
void ReapIfChild(pid_t pid) {
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG);
}

std::string ProgramOf(pid_t pid) {
  std::error_code error;
  std::string program =
      fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error).filename().string();
  // A binary that was built again while it ran.
  if (const std::size_t deleted = program.find(" (deleted)"); deleted != std::string::npos)
    program.resize(deleted);
  return program;
}

bool HasArgumentIn(pid_t pid, const std::string& dir) {
  const auto text = ReadFile("/proc/" + std::to_string(pid) + "/cmdline");
  if (!text.ok()) return false;
  std::istringstream arguments(*text);
  for (std::string argument; std::getline(arguments, argument, '\0');) {
    if (argument.starts_with("--"))
      if (const std::size_t equals = argument.find('='); equals != std::string::npos)
        argument = argument.substr(equals + 1);
    if (argument == dir || argument.starts_with(dir + "/")) return true;
  }
  return false;
}

}  // namespace

Result<ProcessId> StartDaemon(const std::vector<std::string>& argv, const std::string& log,
                              int input) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (input >= 0)
    ::posix_spawn_file_actions_adddup2(&actions, input, 0);
  else
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, argv[0].c_str(), &actions, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoStatus(error, "start " + argv[0]);
  const auto info = ReadProcess(pid);
  return ProcessId{pid, info.ok() ? info->start_time : 0};
}

std::vector<ProcessId> WaitUntilGone(std::vector<ProcessId> ids, Deadline deadline) {
  std::vector<ProcessId> left;
  for (const ProcessId& id : ids) {
    for (;;) {
      const Result<UniqueFd> pidfd = OpenPidfd(id.pid);
      if (!pidfd.ok() || !IsAlive(id)) break;
      pollfd entry{pidfd->get(), POLLIN, 0};
      const int ready = ::poll(&entry, 1, static_cast<int>(deadline.RemainingMillis().count()));
      if (ready > 0) break;
      if (ready < 0 && errno == EINTR) continue;
      left.push_back(id);
      break;
    }
    ReapIfChild(id.pid);
  }
  return left;
}

std::optional<ProcessId> LockedPidFileOwner(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return std::nullopt;
  char text[32] = {};
  if (::pread(fd.get(), text, sizeof text - 1, 0) <= 0) return std::nullopt;
  pid_t pid = 0;
  std::from_chars(text, text + sizeof text, pid);
  const std::optional<ProcessId> owner = FindProcess(pid);
  // Last: what still holds the lock held it when the process was found.
  if (::flock(fd.get(), LOCK_SH | LOCK_NB) == 0) return std::nullopt;
  return owner;
}

std::vector<ProcessId> Descendants(const ProcessId& root) {
  const std::vector<ProcessInfo> table = ReadProcessTable();
  // Alive after the table was read, it is the process of this number in it.
  return IsAlive(root) ? LivingDescendants(table, root.pid) : std::vector<ProcessId>();
}

std::vector<NamedProcess> ProcessesOfDirectory(const std::string& dir) {
  std::vector<NamedProcess> out;
  for (const ProcessInfo& info : ReadProcessTable()) {
    std::string program = ProgramOf(info.pid);
    const bool ours = program.starts_with("muster-") || program == "etcd";
    if (!info.runs() || !ours || !HasArgumentIn(info.pid, dir)) continue;
    out.push_back({info.id(), std::move(program)});
  }
  return out;
}

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

Result<std::string> OwnBinaryDirectory() {
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  if (error)
    return Internal("could not find the directory of the muster program: " + error.message());
  return binary.parent_path().string();
}

std::int64_t SizeOfFile(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : static_cast<std::int64_t>(size);
}

std::vector<std::string> TailOfFile(const std::string& path, std::size_t lines,
                                    std::int64_t offset) {
  constexpr off_t kMaxBytes = 16 << 10;
  std::vector<std::string> out;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return out;
  const off_t size = ::lseek(fd.get(), 0, SEEK_END);
  std::string text(kMaxBytes, '\0');
  const ssize_t n =
      ::pread(fd.get(), text.data(), text.size(), std::max<off_t>(offset, size - kMaxBytes));
  if (n <= 0) return out;
  text.resize(static_cast<std::size_t>(n));
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) out.push_back(line);
  if (out.size() > lines) out.erase(out.begin(), out.end() - static_cast<std::ptrdiff_t>(lines));
  return out;
}

}  // namespace muster
