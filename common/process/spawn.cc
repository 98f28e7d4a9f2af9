#include "common/process/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "common/base/open_files.h"
#include "common/process/cpu_affinity.h"

namespace muster {
namespace {

enum class Stage : int { kFork, kSession, kCgroup, kDirectory, kDescriptors, kExec };

struct ChildError {
  Stage stage;
  int error;
};

// All that the child needs, laid out before fork.
struct Plan {
  const SpawnOptions* options = nullptr;
  std::vector<char*> argv;
  std::vector<char*> environment;
  std::vector<int> staged;  // scratch: the inherited descriptors above every target
  int null_fd = -1;
  int error_fd = -1;
  int highest_target = 2;
  pid_t parent = 0;
  std::vector<unsigned long> cpus;
  std::vector<unsigned long> memory_nodes;
  std::optional<rlimit> open_files;  // that this process was started with
  char oom_text[16] = {};
  int oom_length = 0;
};

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Without the handlers that libraries install for forks: they may take locks. ThreadSanitizer does
// not know _Fork and would leave its own locks taken in the child.
pid_t PlainFork() {
#if defined(__SANITIZE_THREAD__)
  return ::fork();
#else
  return ::_Fork();
#endif
}

[[noreturn]] void Fail(int error_fd, Stage stage) {
  const ChildError message{stage, errno};
  [[maybe_unused]] const ssize_t n = ::write(error_fd, &message, sizeof message);
  ::_exit(127);
}

void ResetSignals(const std::vector<int>& ignored) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &action, nullptr);
  action.sa_handler = SIG_IGN;
  for (const int signal : ignored) ::sigaction(signal, &action, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Puts every inherited descriptor at its number and closes the rest. In two rounds, because a
// source may sit on another's target. Returns where the error pipe is now.
int ArrangeDescriptors(Plan& plan) {
  const SpawnOptions& options = *plan.options;
  const int floor = plan.highest_target + 2;
  const int error_fd = ::fcntl(plan.error_fd, F_DUPFD_CLOEXEC, floor);
  if (error_fd < 0) Fail(plan.error_fd, Stage::kDescriptors);
  const int input = options.input_fd >= 0 ? options.input_fd : plan.null_fd;
  const int output = options.output_fd >= 0 ? options.output_fd : plan.null_fd;
  for (std::size_t i = 0; i < options.inherited.size(); ++i) {
    plan.staged[i] = ::fcntl(options.inherited[i].from, F_DUPFD, floor);
    if (plan.staged[i] < 0) Fail(error_fd, Stage::kDescriptors);
  }
  const int errors = options.errors_fd >= 0 ? options.errors_fd : output;
  const int errors_copy = ::fcntl(errors, F_DUPFD, floor);
  const int output_copy = ::fcntl(output, F_DUPFD, floor);
  const int input_copy = ::fcntl(input, F_DUPFD, floor);
  if (errors_copy < 0 || output_copy < 0 || input_copy < 0) Fail(error_fd, Stage::kDescriptors);
  ::dup2(input_copy, 0);
  ::dup2(output_copy, 1);
  ::dup2(errors_copy, 2);
  for (int fd = 3; fd <= plan.highest_target; ++fd) ::close(fd);
  for (std::size_t i = 0; i < options.inherited.size(); ++i)
    if (::dup2(plan.staged[i], options.inherited[i].to) < 0) Fail(error_fd, Stage::kDescriptors);
  const int last = plan.highest_target + 1;
  if (::dup3(error_fd, last, O_CLOEXEC) < 0) Fail(error_fd, Stage::kDescriptors);
  ::syscall(SYS_close_range, last + 1, ~0U, 0);
  return last;
}

// After the cgroup was joined, which may allow other processors than the parent's.
void Place(const Plan& plan) {
  constexpr long kPreferred = 1;  // MPOL_PREFERRED of linux/mempolicy.h: others when it is full
  constexpr unsigned long kBitsPerWord = 8 * sizeof(unsigned long);
  if (!plan.cpus.empty())
    ::syscall(SYS_sched_setaffinity, 0, plan.cpus.size() * sizeof(unsigned long), plan.cpus.data());
  // The kernel takes one bit less than the given number.
  if (!plan.memory_nodes.empty())
    ::syscall(SYS_set_mempolicy, kPreferred, plan.memory_nodes.data(),
              plan.memory_nodes.size() * kBitsPerWord + 1);
}

[[noreturn]] void RunChild(Plan& plan) {
  const SpawnOptions& options = *plan.options;
  if (options.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have ended before the request was made.
    if (::getppid() != plan.parent) ::_exit(127);
  }
  ResetSignals(options.ignored_signals);
  if (options.cgroup_procs_fd >= 0 && ::write(options.cgroup_procs_fd, "0\n", 2) != 2)
    Fail(plan.error_fd, Stage::kCgroup);
  Place(plan);
  if (plan.oom_length > 0) {
    // Best effort: a kernel that refuses it only loses a preference.
    const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && ::write(fd, plan.oom_text, static_cast<std::size_t>(plan.oom_length)) >= 0)
      ::close(fd);
  }
  if (!options.working_directory.empty() && ::chdir(options.working_directory.c_str()) != 0)
    Fail(plan.error_fd, Stage::kDirectory);
  const int error_fd = ArrangeDescriptors(plan);
  if (plan.open_files) ::setrlimit(RLIMIT_NOFILE, &*plan.open_files);
  ::execve(plan.argv[0], plan.argv.data(), plan.environment.data());
  Fail(error_fd, Stage::kExec);
}

Status DescribeFailure(const ChildError& failure, const SpawnOptions& options) {
  switch (failure.stage) {
    case Stage::kFork: return ErrnoStatus(failure.error, "fork");
    case Stage::kSession: return ErrnoStatus(failure.error, "setsid");
    case Stage::kCgroup: return ErrnoStatus(failure.error, "join the generation's cgroup");
    case Stage::kDirectory:
      return ErrnoStatus(failure.error, "enter directory " + options.working_directory);
    case Stage::kDescriptors: return ErrnoStatus(failure.error, "pass descriptors on");
    case Stage::kExec: return ErrnoStatus(failure.error, "execute " + options.argv[0]);
  }
  return Internal("start " + options.argv[0]);
}

Result<Plan> MakePlan(const SpawnOptions& options) {
  if (options.argv.empty()) return InvalidArgument("no program was given to start");
  Plan plan;
  plan.options = &options;
  plan.argv = Pointers(options.argv);
  plan.environment = Pointers(options.environment);
  plan.staged.resize(options.inherited.size());
  plan.parent = ::getpid();
  plan.open_files = OpenFilesLimitBefore();
  plan.cpus = KernelMask(options.cpus);
  if (options.memory_node >= 0) plan.memory_nodes = KernelMask({options.memory_node});
  for (const InheritedFd& fd : options.inherited)
    plan.highest_target = std::max(plan.highest_target, fd.to);
  if (options.oom_score_adj != 0)
    plan.oom_length =
        ::snprintf(plan.oom_text, sizeof plan.oom_text, "%d\n", options.oom_score_adj);
  return plan;
}

// Waits for exec (end of file) or the child's complaint.
Status AwaitExec(int error_fd, const SpawnOptions& options) {
  ChildError failure{};
  for (;;) {
    const ssize_t n = ::read(error_fd, &failure, sizeof failure);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) return OkStatus();
    if (n == sizeof failure) return DescribeFailure(failure, options);
    return Internal("the child's report on its start was cut short");
  }
}

void Reap(pid_t pid) {
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Result<Pipe> MakePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Result<UniqueFd> OpenNull() {
  UniqueFd fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open /dev/null");
  return fd;
}

}  // namespace

Result<pid_t> SpawnChild(const SpawnOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(Plan plan, MakePlan(options));
  MUSTER_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd null_fd, OpenNull());
  plan.error_fd = pipe.write_end.get();
  plan.null_fd = null_fd.get();
  const pid_t pid = PlainFork();
  if (pid < 0) return ErrnoStatus(errno, "fork");
  if (pid == 0) {
    if (::setsid() < 0) Fail(plan.error_fd, Stage::kSession);
    RunChild(plan);
  }
  pipe.write_end.reset();
  if (Status status = AwaitExec(pipe.read_end.get(), options); !status.ok()) {
    Reap(pid);
    return status;
  }
  return pid;
}

Status SpawnDetached(const SpawnOptions& options) {
  MUSTER_CHECK(!options.die_with_parent, "a detached process has no parent to die with");
  MUSTER_ASSIGN_OR_RETURN(Plan plan, MakePlan(options));
  MUSTER_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd null_fd, OpenNull());
  plan.error_fd = pipe.write_end.get();
  plan.null_fd = null_fd.get();
  const pid_t middle = PlainFork();
  if (middle < 0) return ErrnoStatus(errno, "fork");
  if (middle == 0) {
    if (::setsid() < 0) Fail(plan.error_fd, Stage::kSession);
    const pid_t pid = PlainFork();
    if (pid < 0) Fail(plan.error_fd, Stage::kFork);
    if (pid > 0) ::_exit(0);
    RunChild(plan);
  }
  pipe.write_end.reset();
  Reap(middle);
  return AwaitExec(pipe.read_end.get(), options);
}

Result<UniqueFd> OpenPidfd(pid_t pid) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd.valid()) return ErrnoStatus(errno, "pidfd_open of process " + std::to_string(pid));
  return fd;
}

Result<std::string> FindProgram(const std::string& name, const std::string& search_path,
                                const std::string& working_directory) {
  const auto executable = [](const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
           ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) {
    const std::string path = name.front() == '/' ? name : working_directory + "/" + name;
    if (executable(path)) return path;
    return NotFound("no executable file at " + path);
  }
  for (std::size_t at = 0; at <= search_path.size();) {
    const std::size_t end = std::min(search_path.find(':', at), search_path.size());
    std::string folder = search_path.substr(at, end - at);
    if (folder.empty()) folder = working_directory;
    if (std::string path = folder + "/" + name; executable(path)) return path;
    at = end + 1;
  }
  return NotFound("no program named '" + name + "' in PATH (" + search_path + ")");
}

}  // namespace muster
