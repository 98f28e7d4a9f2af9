#include "worker/guardian/gang.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/base/proc_reader.h"
#include "common/control_pipe/progress_page.h"
#include "common/process/spawn.h"
#include "worker/process/record_file.h"
#include "worker/process/unix_socket.h"

namespace muster {
namespace {

// When memory runs out the kernel shall end a rank, which is replaced, before a daemon.
constexpr int kRankOomScoreAdj = 500;
constexpr int kLogTailLines = 20;
constexpr int kExitCannotStart = 127;

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

}  // namespace

Gang::Gang(Generation generation, std::unique_ptr<Cgroup> cgroup)
    : generation_(generation), cgroup_(std::move(cgroup)) {}

Status Gang::BindMaster(const GuardianPrepare& prepare) {
  master_ = prepare.master;
  if (master_ == MasterSocket::kNone) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(BoundPort bound, BindTcp({.address = prepare.bind_address,
                                                    .listen = master_ == MasterSocket::kListen}));
  listen_fd_ = std::move(bound.fd);
  master_port_ = bound.port;
  return OkStatus();
}

Result<pid_t> Gang::Spawn(const GuardianLaunch& launch, Member* member) {
  const UniqueFd log(
      ::open(launch.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644));
  if (!log.valid()) return ErrnoStatus(errno, "open " + launch.log_path);
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
                       .oom_score_adj = kRankOomScoreAdj};
  options.argv[0] = program;
  PacketSocket rank_end;
  if (launch.control) {
    MUSTER_ASSIGN_OR_RETURN(auto pair, PacketSocket::Pair());
    member->control = std::move(pair.first);
    rank_end = std::move(pair.second);
    MUSTER_ASSIGN_OR_RETURN(member->page, CreateProgressPage());
    options.inherited.push_back({rank_end.fd(), kRankControlFd});
    options.inherited.push_back({member->page.get(), kRankProgressFd});
  }
  if (launch.listen) {
    if (!listen_fd_.valid()) return FailedPrecondition("no listening socket was prepared");
    options.inherited.push_back({listen_fd_.get(), kRankListenFd});
  }
  return SpawnChild(options);
}

void Gang::Launch(const GuardianLaunch& launch, TimePoint now) {
  if (ending() || HasLaunched(launch.rank)) return;
  // The program of rank 0 is about to bind the port itself.
  if (master_ == MasterSocket::kBindOnly) listen_fd_.reset();
  Member& member = members_[launch.rank];
  member.log_path = launch.log_path;
  const Result<pid_t> pid = Spawn(launch, &member);
  // The port lives and dies with the process that serves it, so peers of a dead one are refused
  // instead of waiting in a queue that nobody accepts from.
  if (launch.listen) listen_fd_.reset();
  Status status = pid.status();
  if (pid.ok()) {
    member.pid = *pid;
    auto pidfd = OpenPidfd(*pid);
    if (pidfd.ok()) {
      member.pidfd = std::move(*pidfd);
      return;
    }
    ::kill(-*pid, SIGKILL);
    status = pidfd.status();
  }
  MarkExited(launch.rank, {.exit_code = kExitCannotStart}, now);
  member.exited->log_tail = {"muster: this rank could not be started: " + status.message()};
}

void Gang::AddPollEntries(std::vector<pollfd>* entries) const {
  for (const auto& [rank, member] : members_) {
    if (member.pidfd.valid()) entries->push_back({member.pidfd.get(), POLLIN, 0});
    if (member.control.valid()) entries->push_back({member.control.fd(), POLLIN, 0});
  }
}

std::vector<Gang::Message> Gang::ReceiveMessages() {
  std::vector<Message> messages;
  const Deadline poll = Deadline::At({});
  for (auto& [rank, member] : members_) {
    while (member.control.valid()) {
      auto packet = member.control.Receive(poll);
      if (packet.ok())
        messages.push_back({rank, std::move(packet->data)});
      else if (packet.status().code() == StatusCode::kDeadlineExceeded)
        break;
      else if (packet.status().code() != StatusCode::kDataLoss)
        member.control.Close();
    }
  }
  return messages;
}

std::vector<int> Gang::Reap(TimePoint now) {
  std::vector<int> ended;
  for (;;) {
    int wait_status = 0;
    const pid_t pid = ::waitpid(-1, &wait_status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    for (auto& [rank, member] : members_)
      if (member.pid == pid && !member.exited)
        MarkExited(rank, ProcessExitFromWaitStatus(wait_status), now);
  }
  for (auto& [rank, member] : members_) {
    if (!member.exited || member.exited->age_seconds >= 0) continue;
    member.exited->age_seconds = 0;
    ended.push_back(rank);
  }
  return ended;
}

void Gang::MarkExited(int rank, const ProcessExit& exit, TimePoint now) {
  Member& member = members_[rank];
  member.pidfd.reset();
  member.exited_at = now;
  // A negative age marks an end that Reap has not returned yet.
  member.exited = GuardianRankExited{.generation = generation_,
                                     .rank = rank,
                                     .exit = exit,
                                     .age_seconds = -1,
                                     .log_tail = ReadLastLines(member.log_path, kLogTailLines),
                                     .ended = ending()};
  if (!kill_reason_.empty()) member.exited->log_tail.push_back("muster: " + kill_reason_);
}

void Gang::KillRanks(const std::string& why) {
  kill_reason_ = why;
  SignalGroups(SIGKILL);
}

void Gang::BeginEnd(Duration grace, TimePoint now) {
  listen_fd_.reset();
  const TimePoint kill_at = now + std::max(grace, Duration::zero());
  if (!kill_at_ && grace > Duration::zero()) SignalGroups(SIGTERM);
  kill_at_ = kill_at_ ? std::min(*kill_at_, kill_at) : kill_at;
}

bool Gang::TickEnd(TimePoint now, std::vector<std::int64_t>* unkillable) {
  if (!ending()) return false;
  if (NoChildLeft()) return true;
  if (now < *kill_at_) return false;
  const bool first = !give_up_at_.has_value();
  if (first) {
    give_up_at_ = now + kKillBudget;
    SignalGroups(SIGKILL);
    // A failure leaves the slower way by descent, which is taken in any case.
    (void)cgroup_->KillAll();
  }
  // With a cgroup the first scan can wait for the next round: it rarely finds anything.
  if (!first || cgroup_->procs_fd() < 0) KillDescendants();
  if (now < *give_up_at_) return false;
  for (const pid_t pid : LivingDescendants(ReadProcessTable(), ::getpid()))
    unkillable->push_back(pid);
  kill_at_.reset();
  give_up_at_.reset();
  return true;
}

void Gang::SignalGroups(int signal) {
  for (const auto& [rank, member] : members_)
    if (member.pid > 0 && !member.exited) ::kill(-member.pid, signal);
}

void Gang::KillDescendants() {
  for (const pid_t pid : LivingDescendants(ReadProcessTable(), ::getpid())) ::kill(pid, SIGKILL);
}

}  // namespace muster
