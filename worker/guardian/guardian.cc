#include "worker/guardian/guardian.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/files.h"
#include "common/base/proc_reader.h"
#include "worker/guardian/log_line.h"

namespace muster {
namespace {

// How often what is being ended is looked at; deaths of children wake the loop anyway.
constexpr int kEndingTickMillis = 5;

std::string RankName(Generation generation, int rank) {
  const std::string who = rank == kStoreRank ? "store" : "rank " + std::to_string(rank);
  return "g" + std::to_string(generation) + ": " + who;
}

Result<UniqueFd> BlockSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGPIPE}) ::sigaddset(&set, signal);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return ErrnoStatus(errno, "sigprocmask");
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "signalfd");
  return fd;
}

std::string KindOf(const std::string& report) {
  const auto json = nlohmann::json::parse(report, nullptr, false);
  if (!json.is_object()) return {};
  const auto type = json.find("type");
  return type != json.end() && type->is_string() ? type->get<std::string>() : std::string();
}

}  // namespace

Result<std::unique_ptr<Guardian>> Guardian::Start(const GuardianOptions& options) {
  MUSTER_RETURN_IF_ERROR(MakeDirectories(options.directory + "/exits"));
  const std::string record_path = options.directory + "/" + kGuardianRecordName;
  MUSTER_ASSIGN_OR_RETURN(LockedRecord record, LockedRecord::Acquire(record_path));
  Generation newest = 0;
  // A predecessor's newest generation still fences: what it refused stays refused.
  if (const auto old = ReadFile(record_path); old.ok()) {
    const auto json = nlohmann::json::parse(*old, nullptr, false);
    if (json.is_object() && json.contains("generation") && json["generation"].is_number_integer())
      newest = json["generation"].get<Generation>();
  }
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    return ErrnoStatus(errno, "become the subreaper of the ranks");
  MUSTER_ASSIGN_OR_RETURN(UniqueFd signals, BlockSignals());
  PacketSocket first{UniqueFd(options.worker_fd)};
  MUSTER_ASSIGN_OR_RETURN(WorkerLink link, WorkerLink::Open(options.directory, std::move(first)));
  std::unique_ptr<Guardian> guardian(
      new Guardian(options, std::move(record), std::move(link), std::move(signals)));
  guardian->newest_ = newest;
  // What becomes of the generation from now on is this guardian's to tell.
  ::unlink((options.directory + "/" + StoppedRecordName(newest)).c_str());
  guardian->WriteRecord();
  return guardian;
}

Guardian::Guardian(GuardianOptions options, LockedRecord record, WorkerLink link, UniqueFd signals)
    : options_(std::move(options)),
      record_(std::move(record)),
      link_(std::move(link)),
      signals_(std::move(signals)) {}

int Guardian::Run() {
  LogLine("job " + options_.job + ": up, pid " + std::to_string(::getpid()));
  if (link_.connected()) Replay();
  while (!done_) {
    Wait();
    HandleSignals();
    HandleRanks();
    if (link_.Accept()) Replay();
    for (const GuardianCommand& command : link_.Receive())
      std::visit([this](const auto& c) { Handle(c); }, command);
    // A launch that failed at once is an end to report.
    HandleRanks();
    ContinueEnd();
    // Its starter has died before it asked for anything: there is nothing to keep for another.
    if (!gang_ && !link_.connected() && options_.worker_fd >= 0) done_ = true;
  }
  gang_.reset();
  record_.Remove();
  ::unlink((options_.directory + "/" + kGuardianSocketName).c_str());
  LogLine("job " + options_.job + ": released");
  return 0;
}

void Guardian::Wait() {
  std::vector<pollfd> entries = {{signals_.get(), POLLIN, 0}};
  link_.AddPollEntries(&entries);
  if (gang_) gang_->AddPollEntries(&entries);
  const bool ending = gang_ && gang_->ending();
  // An interruption or a failure of poll only means one round without news.
  ::poll(entries.data(), entries.size(), ending ? kEndingTickMillis : leaving_ ? 0 : -1);
}

void Guardian::HandleSignals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGTERM && info.ssi_signo != SIGINT) continue;
    LogLine("ended by signal " + std::to_string(info.ssi_signo));
    if (!stopped_at_) {
      stopped_at_ = SystemClock().Now();
      const std::string path = options_.directory + "/" + StoppedRecordName(newest_);
      if (const Status status = ReplaceFile(path, ""); !status.ok()) LogLine(status.ToString());
    }
    Handle(GuardianRelease{});
  }
}

void Guardian::HandleRanks() {
  if (!gang_) return;
  // Messages are read after the reaping, so that all that an ended rank said is reported before
  // its end.
  const std::vector<int> ended = gang_->Reap(SystemClock().Now());
  for (Gang::Message& message : gang_->ReceiveMessages()) {
    reports_.Add(message.rank, KindOf(message.data), message.data);
    link_.Send(GuardianReport{gang_->generation(), message.rank, std::move(message.data)});
  }
  for (const int rank : ended) ReportExit(rank);
}

void Guardian::ReportExit(int rank) {
  const GuardianRankExited exited = ExitedNow(gang_->members().at(rank));
  LogLine(RankName(exited.generation, rank) + " ended: " + DescribeExit(exited.exit));
  if (rank == kStoreRank) {
    // Without it ranks that form would wait for minutes.
    if (!gang_->ending() && !gang_ended_)
      gang_->KillRanks("the store ended (" + DescribeExit(exited.exit) + "), see store.log");
    return;
  }
  // Renamed into place before it is reported, so that it outlives this process. Not synced to disk:
  // after a reboot nothing of the generation is left, whatever a record says, and a sync beside a
  // checkpoint that is being written could hold up a recovery for seconds.
  const std::string path = options_.directory + "/" + ExitRecordName(exited.generation, rank);
  if (const Status status = ReplaceFile(path, EncodeExitRecord(exited)); !status.ok())
    LogLine(status.ToString());
  link_.Send(exited);
}

GuardianRankExited Guardian::ExitedNow(const Gang::Member& member) const {
  GuardianRankExited exited = *member.exited;
  exited.age_seconds = ToSeconds(SystemClock().Now() - member.exited_at);
  exited.node_stopped =
      stopped_at_ && member.exited_at >= *stopped_at_ && exited.exit.signal == SIGKILL;
  return exited;
}

bool Guardian::Admit(Generation generation) {
  if (generation < newest_ || generation <= 0) {
    Refuse(generation, "generation " + std::to_string(newest_) + " is newer");
    return false;
  }
  if (generation > newest_) {
    newest_ = generation;
    WriteRecord();
  }
  return true;
}

void Guardian::Refuse(Generation generation, const std::string& why) {
  LogLine("refused a command of generation " + std::to_string(generation) + ": " + why);
  link_.Send(GuardianRefused{generation, newest_, why});
}

void Guardian::Handle(const GuardianPrepare& prepare) {
  if (leaving_ || !Admit(prepare.generation)) return;
  if (gang_ && gang_->generation() == prepare.generation) {
    if (gang_ended_ || gang_->ending())
      Refuse(prepare.generation, "it has been aborted");
    else
      link_.Send(GuardianPrepared{prepare.generation, {}, gang_->master_port()});
    return;
  }
  pending_prepare_ = prepare;
  abort_asked_ = false;
  if (gang_ && (!gang_ended_ || !unkillable_.empty())) {
    BeginEnd(Duration::zero());
    return;
  }
  PrepareNow(prepare);
}

void Guardian::PrepareNow(const GuardianPrepare& prepare) {
  pending_prepare_.reset();
  const std::string name = "muster-" + options_.job + "-" + std::to_string(::getpid()) + "-g" +
                           std::to_string(prepare.generation);
  std::unique_ptr<Cgroup> cgroup = MakeCgroup(name);
  cgroup_path_ = cgroup->path();
  gang_ = std::make_unique<Gang>(prepare.generation, std::move(cgroup));
  gang_ended_ = false;
  unkillable_.clear();
  reports_.Clear();
  WriteRecord();
  const Status bound = gang_->BindMaster(prepare);
  if (!bound.ok()) gang_ended_ = true;
  link_.Send(GuardianPrepared{prepare.generation, bound.message(), gang_->master_port()});
  LogLine("g" + std::to_string(prepare.generation) + ": prepared" +
          (bound.ok() ? "" : ", but " + bound.message()));
}

void Guardian::Handle(const GuardianLaunch& launch) {
  if (leaving_ || !Admit(launch.generation)) return;
  if (!gang_ || gang_->generation() != launch.generation || gang_ended_ || gang_->ending()) {
    Refuse(launch.generation, "it is not prepared");
    return;
  }
  if (gang_->HasLaunched(launch.rank)) return;
  gang_->Launch(launch, SystemClock().Now());
  const Gang::Member& member = gang_->members().at(launch.rank);
  LogLine(RankName(launch.generation, launch.rank) + " started, pid " + std::to_string(member.pid));
  if (launch.rank == kStoreRank || member.pid == 0) return;
  link_.Send(GuardianRankStarted{launch.generation, launch.rank, member.pid}, member.page.get());
}

void Guardian::Handle(const GuardianAbort& abort) {
  if (!Admit(abort.generation)) return;
  LogLine("g" + std::to_string(abort.generation) + ": abort: " + abort.reason);
  pending_prepare_.reset();
  if (!gang_ || (gang_ended_ && unkillable_.empty())) {
    link_.Send(GuardianQuiesced{newest_, {}});
    return;
  }
  abort_asked_ = true;
  BeginEnd(FromSeconds(abort.grace_seconds));
}

void Guardian::Handle(const GuardianRelease&) {
  leaving_ = true;
  pending_prepare_.reset();
  if (gang_ && !gang_ended_) {
    BeginEnd(Duration::zero());
    return;
  }
  done_ = true;
}

void Guardian::BeginEnd(Duration grace) {
  // Who has ended by now was not ended by this.
  HandleRanks();
  gang_ended_ = false;
  gang_->BeginEnd(grace, SystemClock().Now());
}

void Guardian::ContinueEnd() {
  if (!gang_ || !gang_->ending() || gang_ended_) return;
  std::vector<std::int64_t> unkillable;
  if (gang_->TickEnd(SystemClock().Now(), &unkillable)) {
    // The last deaths may have been seen only by the proof.
    HandleRanks();
    FinishEnd(std::move(unkillable));
  }
}

void Guardian::FinishEnd(std::vector<std::int64_t> unkillable) {
  gang_ended_ = true;
  unkillable_ = std::move(unkillable);
  LogLine("g" + std::to_string(gang_->generation()) + ": " +
          (unkillable_.empty() ? "every process is gone"
                               : std::to_string(unkillable_.size()) + " processes resist"));
  if (abort_asked_) link_.Send(GuardianQuiesced{newest_, unkillable_});
  abort_asked_ = false;
  if (leaving_) {
    done_ = true;
    return;
  }
  if (!pending_prepare_) return;
  const GuardianPrepare prepare = *pending_prepare_;
  if (unkillable_.empty()) {
    PrepareNow(prepare);
    return;
  }
  pending_prepare_.reset();
  link_.Send(GuardianPrepared{prepare.generation,
                              "process " + std::to_string(unkillable_.front()) + " of generation " +
                                  std::to_string(gang_->generation()) +
                                  " does not end, not even by SIGKILL",
                              0});
}

void Guardian::Replay() {
  link_.Send(GuardianHello{::getpid(), options_.job, newest_});
  if (gang_ && gang_->generation() == newest_) {
    const Generation generation = gang_->generation();
    link_.Send(GuardianPrepared{generation, {}, gang_->master_port()});
    for (const auto& [rank, member] : gang_->members())
      if (rank != kStoreRank && member.pid != 0)
        link_.Send(GuardianRankStarted{generation, rank, member.pid}, member.page.get());
    for (const ReportLog::Entry& entry : reports_.entries())
      link_.Send(GuardianReport{generation, entry.rank, entry.json});
    for (const auto& [rank, member] : gang_->members())
      if (rank != kStoreRank && member.exited) link_.Send(ExitedNow(member));
  }
  const bool nothing_runs = !gang_ || gang_ended_;
  if (newest_ > 0 && nothing_runs && !pending_prepare_)
    link_.Send(GuardianQuiesced{newest_, unkillable_});
  link_.Send(GuardianSynced{});
}

void Guardian::WriteRecord() {
  const auto self = ReadProcess(::getpid());
  const nlohmann::json json = {
      {"pid", ::getpid()},     {"start_time", self.ok() ? self->start_time : 0},
      {"boot_id", BootId()},   {"job", options_.job},
      {"generation", newest_}, {"cgroup", cgroup_path_}};
  if (const Status status = record_.Write(json.dump() + "\n"); !status.ok())
    LogLine(status.ToString());
}

}  // namespace muster
