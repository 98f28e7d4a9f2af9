#include "worker/guardian/process_host.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "common/base/ignored_signals.h"
#include "common/base/proc_reader.h"
#include "common/control_pipe/progress_page.h"
#include "common/process/cpu_affinity.h"
#include "common/process/process_id.h"
#include "common/process/spawn.h"
#include "worker/process/secret_file.h"
#include "worker/process/unix_socket.h"

namespace muster::guardian {
namespace {

// When memory runs out the kernel should end a rank, which is replaced, before a daemon.
constexpr int kRankOomScoreAdj = 500;
constexpr int kLogTailLines = 20;

std::string SearchPath(const std::vector<std::string>& environment) {
  for (const std::string& entry : environment)
    if (entry.starts_with("PATH=")) return entry.substr(5);
  return "/usr/local/bin:/usr/bin:/bin";
}

// A child that has ended but was not reaped counts as left: its end is still to be reported.
bool NoChildLeft() {
  siginfo_t info;
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

// Who the account is, as far as neither the job nor the worker says: they are this process's own
// where it runs as another user than the worker.
void AddAccount(std::vector<std::string>* environment) {
  for (const char* name : {"HOME", "USER", "LOGNAME", "SHELL"}) {
    const char* const value = std::getenv(name);
    const std::string start = std::string(name) + "=";
    const bool is_set = std::ranges::any_of(
        *environment, [&](const std::string& entry) { return entry.starts_with(start); });
    if (value != nullptr && !is_set) environment->push_back(start + value);
  }
}

}  // namespace

ProcessHost::ProcessHost(std::unique_ptr<Cgroup> cgroup, DeviceLocks locks)
    : cgroup_(std::move(cgroup)),
      memory_events_(FindMemoryEvents(cgroup_->path())),
      oom_kills_(ReadOomKills(memory_events_)),
      own_cpus_(AllowedCpus()),
      locks_(std::move(locks)) {}

Status ProcessHost::CarryOut(const LimitMemory& limit) {
  if (std::exchange(memory_limit_, limit.bytes) == limit.bytes) return OkStatus();
  return cgroup_->LimitMemory(limit.bytes);
}

Result<int> ProcessHost::Bind(const BindMaster& master) {
  MUSTER_ASSIGN_OR_RETURN(
      BoundPort bound,
      BindTcp({.address = master.address, .listen = master.kind == MasterSocket::kListen}));
  listen_fd_ = std::move(bound.fd);
  return bound.port;
}

Result<pid_t> ProcessHost::Spawn(const GuardianLaunch& launch, Process* process) {
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd log, logs_.Open(launch.log_path));
  if (launch.argv.empty()) return InvalidArgument("the command is empty");
  MUSTER_ASSIGN_OR_RETURN(
      const std::string program,
      FindProgram(launch.argv[0], SearchPath(launch.environment), launch.working_directory));
  SpawnOptions options{.argv = launch.argv,
                       .environment = launch.environment,
                       .working_directory = launch.working_directory,
                       .output_fd = log.get(),
                       .cgroup_procs_fd = cgroup_->procs_fd(),
                       .die_with_parent = true,
                       .cpus = launch.cpus,
                       .memory_node = launch.memory_node,
                       .oom_score_adj = kRankOomScoreAdj};
  options.argv[0] = program;
  AddAccount(&options.environment);
  // SIGTERM is the order for a rank to end.
  options.ignored_signals = IgnoredNotices();
  std::erase(options.ignored_signals, SIGTERM);
  PacketSocket rank_end;
  if (launch.control) {
    MUSTER_ASSIGN_OR_RETURN(auto pair, PacketSocket::Pair());
    process->control = std::move(pair.first);
    rank_end = std::move(pair.second);
    MUSTER_ASSIGN_OR_RETURN(process->page, CreateProgressPage());
    options.inherited.push_back({rank_end.fd(), kRankControlFd});
    options.inherited.push_back({process->page.get(), kRankProgressFd});
  }
  if (launch.listen) {
    if (!listen_fd_.valid()) return FailedPrecondition("no listening socket was prepared");
    options.inherited.push_back({listen_fd_.get(), kRankListenFd});
  }
  MUSTER_ASSIGN_OR_RETURN(const std::vector<int> locks, locks_.Descriptors(launch.devices));
  int target = kRankFirstLockFd;
  for (const int lock : locks) options.inherited.push_back({lock, target++});
  std::vector<UniqueFd> files;
  if (secrets_.valid() && launch.rank != kStoreRank) {
    MUSTER_ASSIGN_OR_RETURN(const RankSecrets secrets, ReadSecretFile(secrets_.get()));
    MUSTER_ASSIGN_OR_RETURN(files, AddSecrets(secrets, target, &options));
  }
  return SpawnChild(options);
}

// A core file would have what the environment has.
void ProcessHost::TakeSecrets(UniqueFd secrets) {
  secrets_ = std::move(secrets);
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  (void)::setrlimit(RLIMIT_CORE, &none);
}

Result<pid_t> ProcessHost::Start(const StartProcess& start) {
  Process process{.log_path = start.launch.log_path, .cpus = start.launch.cpus};
  MUSTER_ASSIGN_OR_RETURN(process.pid, Spawn(start.launch, &process));
  auto pidfd = OpenPidfd(process.pid);
  if (!pidfd.ok()) {
    ::kill(-process.pid, SIGKILL);
    return pidfd.status();
  }
  process.pidfd = std::move(*pidfd);
  const pid_t pid = process.pid;
  processes_[start.process] = std::move(process);
  return pid;
}

// Called before it has the assignment, so that the threads that it starts for it are bound there
// too. Does nothing if nothing changes: threads may have chosen processors themselves. Errors are
// ignored: a process on other processors is slower, not wrong.
void ProcessHost::Keep(Process& process, const std::vector<int>& cpus) {
  if (process.cpus == cpus) return;
  (void)KeepProcessOn(process.pid, cpus.empty() ? own_cpus_ : cpus);
  process.cpus = cpus;
}

Status ProcessHost::Assign(const AssignProcess& assign) {
  const auto it = processes_.find(assign.process);
  if (it == processes_.end() || !it->second.control.valid())
    return Unavailable("its process is gone");
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd log, logs_.Open(assign.log_path));
  it->second.log_path = assign.log_path;
  Keep(it->second, assign.cpus);
  std::vector<int> descriptors = {log.get()};
  if (assign.listen) {
    if (!listen_fd_.valid()) return FailedPrecondition("no listening socket was prepared");
    descriptors.push_back(listen_fd_.get());
  }
  MUSTER_ASSIGN_OR_RETURN(const std::vector<int> locks, locks_.Descriptors(assign.devices));
  descriptors.insert(descriptors.end(), locks.begin(), locks.end());
  return it->second.control.Send(assign.message, descriptors, Deadline::At({}));
}

Status ProcessHost::Send(ProcessId id, const std::string& message, int descriptor) {
  const auto it = processes_.find(id);
  if (it == processes_.end() || !it->second.control.valid())
    return Unavailable("its process is gone");
  const std::vector<int> descriptors =
      descriptor >= 0 ? std::vector<int>{descriptor} : std::vector<int>{};
  return it->second.control.Send(message, descriptors, Deadline::At({}));
}

void ProcessHost::Signal(ProcessId id, int signal) {
  const auto it = processes_.find(id);
  // Its leader is a child that was not reaped, so the group's number is not reused.
  if (it != processes_.end() && !it->second.ended) ::kill(-it->second.pid, signal);
}

int ProcessHost::page(ProcessId id) const {
  const auto it = processes_.find(id);
  return it != processes_.end() && it->second.page.valid() ? it->second.page.get() : -1;
}

void ProcessHost::AddPollEntries(std::vector<pollfd>* entries) const {
  for (const auto& [id, process] : processes_) {
    if (process.pidfd.valid()) entries->push_back({process.pidfd.get(), POLLIN, 0});
    if (process.control.valid()) entries->push_back({process.control.fd(), POLLIN, 0});
  }
}

std::vector<ProcessHost::Message> ProcessHost::ReceiveMessages() {
  std::vector<Message> messages;
  const Deadline poll = Deadline::At({});
  for (auto& [id, process] : processes_) {
    while (process.control.valid()) {
      auto packet = process.control.Receive(poll);
      if (packet.ok())
        messages.push_back({id, std::move(packet->data),
                            packet->fds.empty() ? UniqueFd() : std::move(packet->fds[0])});
      else if (packet.status().code() == StatusCode::kDeadlineExceeded)
        break;
      else if (packet.status().code() != StatusCode::kDataLoss)
        process.control.Close();
    }
  }
  return messages;
}

std::vector<ProcessHost::Ended> ProcessHost::Reap() {
  std::vector<Ended> ended;
  for (;;) {
    int wait_status = 0;
    const pid_t pid = ::waitpid(-1, &wait_status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    for (auto& [id, process] : processes_) {
      if (process.pid != pid || process.ended) continue;
      process.ended = true;
      process.pidfd.reset();
      ended.push_back({id,
                       {.exit = ProcessExitFromWaitStatus(wait_status),
                        .log_tail = logs_.LastLines(process.log_path, kLogTailLines)}});
    }
  }
  const bool any_killed =
      std::ranges::any_of(ended, [](const Ended& e) { return e.end.exit.signal == SIGKILL; });
  // Counted before the signal is sent, so a count that has not risen is proof.
  if (!any_killed || memory_events_.empty()) return ended;
  const std::int64_t before = std::exchange(oom_kills_, ReadOomKills(memory_events_));
  for (Ended& e : ended) e.end.out_of_memory = e.end.exit.signal == SIGKILL && oom_kills_ > before;
  return ended;
}

SweepResult ProcessHost::CarryOut(const Sweep& sweep) {
  return sweep.keep.empty() ? SweepAll(sweep.kill) : SweepOthers(sweep.keep, sweep.kill);
}

SweepResult ProcessHost::SweepAll(bool kill) {
  if (NoChildLeft()) return {.none_left = true};
  if (!kill) return {};
  // On failure there remains the slower way by descent, which runs in any case.
  (void)cgroup_->KillAll();
  SweepResult result;
  for (const muster::ProcessId& id : LivingDescendants(ReadProcessTable(), ::getpid())) {
    muster::SignalProcess(id, SIGKILL);
    result.left.push_back(id.pid);
  }
  return result;
}

SweepResult ProcessHost::SweepOthers(const std::vector<ProcessId>& keep, bool kill) {
  // A kept process removes all its descendants from the table.
  std::vector<ProcessInfo> table = ReadProcessTable();
  std::erase_if(table, [&](const ProcessInfo& info) {
    return std::ranges::any_of(keep, [&](ProcessId id) {
      const auto it = processes_.find(id);
      return it != processes_.end() && !it->second.ended && it->second.pid == info.pid;
    });
  });
  SweepResult result;
  for (const muster::ProcessId& id : LivingDescendants(table, ::getpid())) {
    if (kill) muster::SignalProcess(id, SIGKILL);
    result.left.push_back(id.pid);
  }
  result.none_left = result.left.empty();
  return result;
}

}  // namespace muster::guardian
