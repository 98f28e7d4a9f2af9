#include "worker/guardian/guardian.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <random>
#include <utility>

#include "common/base/files.h"
#include "common/base/ignored_signals.h"
#include "common/base/json.h"
#include "common/base/proc_reader.h"
#include "common/base/replace_file.h"
#include "worker/guardian/log_line.h"

namespace muster {
namespace {

constexpr auto kLookForSocket = std::chrono::seconds(2);
constexpr mode_t kSharedFile = 0640;  // whatever the umask

Result<UniqueFd> BlockSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGHUP, SIGPIPE}) ::sigaddset(&set, signal);
  // A blocked signal would be delivered although it is ignored.
  if (!IsIgnored(SIGTERM)) ::sigaddset(&set, SIGTERM);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return ErrnoStatus(errno, "sigprocmask");
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "signalfd");
  return fd;
}

// What a predecessor has seen: what it refused stays refused.
Generation NewestInRecord(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text.ok()) return 0;
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  const bool has =
      json.is_object() && json.contains("generation") && json["generation"].is_number_integer();
  return has ? json["generation"].get<Generation>() : 0;
}

std::string JobsDirectory(const GuardianOptions& options) {
  const auto parent = std::filesystem::path(options.directory).parent_path();
  return (options.worker_uid == kNoOtherUser ? parent : parent.parent_path()).string();
}

void LogFailure(const Status& status) {
  if (!status.ok()) LogLine(status.ToString());
}

// Guardians of one job can have the same pid below one cgroup: those of pods or other containers
// that share it. What one of them ends must not be the other's.
std::string UniqueCgroupName(const std::string& job) {
  return "muster-" + job + "-" + std::to_string(::getpid()) + "-" +
         std::to_string(std::random_device{}());
}

}  // namespace

Result<std::unique_ptr<Guardian>> Guardian::Start(const GuardianOptions& options) {
  MUSTER_RETURN_IF_ERROR(MakeDirectories(options.directory + "/exits", kPrivateDirectory));
  const std::string record_path = options.directory + "/" + kGuardianRecordName;
  MUSTER_ASSIGN_OR_RETURN(LockedRecord record, LockedRecord::Acquire(record_path));
  const bool apart = options.worker_uid != kNoOtherUser;
  if (apart && ::fchmod(record.fd(), kSharedFile) != 0)
    return ErrnoStatus(errno, "let the worker read " + record_path);
  const Generation newest = NewestInRecord(record_path);
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    return ErrnoStatus(errno, "become the subreaper of the ranks");
  MUSTER_ASSIGN_OR_RETURN(UniqueFd signals, BlockSignals());
  PacketSocket first{UniqueFd(options.worker_fd)};
  MUSTER_ASSIGN_OR_RETURN(
      WorkerLink link, WorkerLink::Open(options.directory, std::move(first), options.worker_uid));
  std::unique_ptr<Guardian> guardian(
      new Guardian(options,
                   {.record = std::move(record),
                    .link = std::move(link),
                    .signals = std::move(signals),
                    .cgroup = MakeCgroup(UniqueCgroupName(options.job))},
                   newest));
  // From now on this guardian reports about the generation.
  ::unlink((options.directory + "/" + StoppedRecordName(newest)).c_str());
  guardian->Do(guardian::WriteRecord{newest});
  return guardian;
}

Guardian::Guardian(GuardianOptions options, Parts parts, Generation newest)
    : options_(std::move(options)),
      record_(std::move(parts.record)),
      link_(std::move(parts.link)),
      signals_(std::move(parts.signals)),
      cgroup_path_(parts.cgroup->path()),
      host_(std::move(parts.cgroup), {options_.devices, options_.job, JobsDirectory(options_)}),
      core_(options_.job, newest) {}

int Guardian::Run() {
  LogLine("job " + options_.job + ": up, pid " + std::to_string(::getpid()));
  if (link_.connected()) Decide(guardian::WorkerConnected{::getpid()});
  while (!done_) {
    Wait();
    HandleSignals();
    HandleProcesses();
    HandleWorker();
    // A launch that failed at once is an end to report.
    HandleProcesses();
    Decide(guardian::Tick{});
    // Its starter died before it sent a request: there is nothing to keep for another.
    if (core_.idle() && !link_.connected() && options_.worker_fd >= 0) done_ = true;
    EndIfCutOff();
  }
  // What lies there by now is a successor's.
  if (cut_off_) return 0;
  record_.Remove();
  ::unlink((options_.directory + "/" + kGuardianSocketName).c_str());
  LogLine("job " + options_.job + ": released");
  return 0;
}

// Without its socket no worker finds it, and the slots of its ranks are given to others.
void Guardian::EndIfCutOff() {
  const TimePoint now = SystemClock().Now();
  if (link_.connected() || core_.ending() || now < look_for_socket_at_) return;
  look_for_socket_at_ = now + kLookForSocket;
  const std::string socket = options_.directory + "/" + kGuardianSocketName;
  if (::access(socket.c_str(), F_OK) == 0 || errno != ENOENT) return;
  if (cut_off_) {
    done_ = true;
    return;
  }
  cut_off_ = true;
  LogLine(socket + " is gone, so that no worker can reach this guardian: it ends its ranks");
  Decide(guardian::TerminateRequested{});
}

void Guardian::Wait() {
  const TimePoint now = SystemClock().Now();
  std::optional<TimePoint> until;
  if (core_.ending()) until = now + guardian::kEndingTick;
  if (core_.waits_for_unkillable()) until = now + guardian::kUnkillableTick;
  if (!link_.connected())
    until = std::min(until.value_or(look_for_socket_at_), look_for_socket_at_);
  std::vector<pollfd> entries = {{signals_.get(), POLLIN, 0}};
  link_.AddPollEntries(now, &entries, &until);
  host_.AddPollEntries(&entries);
  const int timeout = until ? static_cast<int>(Deadline::At(*until).RemainingMillis().count()) : -1;
  // An interruption or a failure of poll only means one round without events.
  ::poll(entries.data(), entries.size(), timeout);
}

void Guardian::HandleSignals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGTERM && info.ssi_signo != SIGINT) continue;
    LogLine("ended by signal " + std::to_string(info.ssi_signo));
    // A process that has ended by now was not ended by this.
    HandleProcesses();
    Decide(guardian::TerminateRequested{});
  }
}

void Guardian::HandleProcesses() {
  // Messages are read after the reaping, so that all messages of an ended process are reported
  // before its end.
  const std::vector<guardian::ProcessHost::Ended> ended = host_.Reap();
  for (guardian::ProcessHost::Message& message : host_.ReceiveMessages()) {
    incoming_ = std::move(message.descriptor);
    Decide(guardian::MessageReceived{
        .process = message.process, .json = message.data, .has_descriptor = incoming_.valid()});
    incoming_.reset();
  }
  for (const auto& [process, end] : ended) Decide(guardian::ProcessEnded{process, end});
}

void Guardian::HandleWorker() {
  if (link_.Accept(SystemClock().Now())) Decide(guardian::WorkerConnected{::getpid()});
  for (WorkerLink::Command& command : link_.Receive()) {
    // A process that has ended or parked by now did so before the command.
    HandleProcesses();
    incoming_ = std::move(command.descriptor);
    Decide(guardian::CommandReceived{command.command});
    incoming_.reset();
  }
}

void Guardian::Decide(const guardian::Event& event) {
  for (const guardian::Effect& effect : core_.Handle(event, SystemClock().Now()))
    std::visit([this](const auto& e) { Do(e); }, effect);
}

int Guardian::SegmentFd(const std::string& name) const {
  const auto it = segments_.find(name);
  return it != segments_.end() ? it->second.get() : -1;
}

void Guardian::Do(const guardian::SendToWorker& effect) {
  const int fd = effect.page_of != 0 ? host_.page(effect.page_of) : SegmentFd(effect.segment);
  link_.Send(effect.event, fd);
}

void Guardian::Do(const guardian::StartProcess& effect) {
  const Result<pid_t> pid = host_.Start(effect);
  if (!pid.ok()) return Decide(guardian::ProcessNotStarted{effect.process, pid.status().message()});
  Decide(guardian::ProcessStarted{effect.process, *pid});
}

void Guardian::Do(const guardian::AssignProcess& effect) {
  const Status status = host_.Assign(effect);
  if (!status.ok()) Decide(guardian::ProcessNotStarted{effect.process, status.message()});
}

void Guardian::Do(const guardian::SendToProcess& effect) {
  const int fd = SegmentFd(effect.segment);
  if (fd < 0 && !effect.segment.empty()) return;
  LogFailure(host_.Send(effect.process, effect.message, fd));
}

void Guardian::Do(const guardian::SignalProcess& effect) {
  host_.Signal(effect.process, effect.signal);
}

void Guardian::Do(const guardian::ForgetProcess& effect) { host_.Forget(effect.process); }

void Guardian::Do(const guardian::LimitMemory& effect) {
  const Status status = host_.CarryOut(effect);
  if (!status.ok())
    LogLine("the job's limit of " + std::to_string(effect.bytes) +
            " bytes of memory is accounted, not enforced: " + status.message());
}

void Guardian::Do(const guardian::LockDevices& effect) {
  const Status status = host_.CarryOut(effect);
  Decide(guardian::DevicesLocked{status});
}

void Guardian::Do(const guardian::UnlockDevices&) { host_.UnlockDevices(); }

void Guardian::Do(const guardian::BindMaster& effect) {
  Decide(guardian::MasterBound{host_.Bind(effect)});
}

void Guardian::Do(const guardian::CloseMaster&) { host_.CloseMaster(); }

void Guardian::Do(const guardian::Sweep& effect) {
  const guardian::SweepResult result = host_.CarryOut(effect);
  Decide(guardian::Swept{result});
}

void Guardian::Do(const guardian::HoldSegment& effect) {
  segments_[effect.name] = std::move(incoming_);
}

void Guardian::Do(const guardian::ReleaseSegment& effect) { segments_.erase(effect.name); }

void Guardian::Do(const guardian::WriteRecord& effect) {
  const auto self = ReadProcess(::getpid());
  const nlohmann::json json = {
      {"pid", ::getpid()},           {"start_time", self.ok() ? self->start_time : 0},
      {"boot_id", BootId()},         {"job", options_.job},
      {"generation", effect.newest}, {"cgroup", cgroup_path_}};
  LogFailure(record_.Write(json.dump() + "\n"));
}

void Guardian::Do(const guardian::WriteExitRecord& effect) {
  // Renamed into place before it is reported, so that it outlives this process. Not synced to disk:
  // after a reboot nothing of the generation is left, whatever a record contains, and a sync while
  // a checkpoint is written could delay a recovery for seconds.
  const GuardianRankExited& exited = effect.exited;
  LogFailure(ReplaceFile(options_.directory + "/" + ExitRecordName(exited.generation, exited.rank),
                         EncodeExitRecord(exited)));
}

void Guardian::Do(const guardian::WriteStoppedRecord& effect) {
  LogFailure(ReplaceFile(options_.directory + "/" + StoppedRecordName(effect.generation), ""));
}

void Guardian::Do(const guardian::LogNote& effect) { LogLine(effect.text); }

void Guardian::Do(const guardian::Leave&) { done_ = true; }

}  // namespace muster
