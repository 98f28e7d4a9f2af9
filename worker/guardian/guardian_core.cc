#include "worker/guardian/guardian_core.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "common/base/json.h"

namespace muster::guardian {
namespace {

std::string Name(Generation generation) { return "g" + std::to_string(generation); }

// For the log: "g2: rank 1".
std::string RankName(Generation generation, int rank) {
  return Name(generation) + ": " + (rank == kStoreRank ? "store" : "rank " + std::to_string(rank));
}

std::string AssignMessage(const GuardianLaunch& launch) {
  nlohmann::json descriptors = {"log"};
  if (launch.listen) descriptors.push_back("listen");
  descriptors.insert(descriptors.end(), launch.devices.size(), "lock");
  return RankMessage({{"type", "assign"},
                      {"generation", launch.generation},
                      {"rendezvous_token", launch.rendezvous_token},
                      {"environment", launch.environment},
                      {"descriptors", descriptors}});
}

void SendPrepared(const Gang& gang, EffectList& out) {
  out.Send(gang.Prepared());
  out.Note(Name(gang.generation) + ": prepared" +
           (gang.error.empty() ? "" : ", but " + gang.error));
}

}  // namespace

std::string RankMessage(const nlohmann::json& message) {
  return message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

GuardianCore::GuardianCore(std::string job, Generation newest)
    : job_(std::move(job)), newest_(newest) {}

Effects GuardianCore::Handle(const Event& event, TimePoint now) {
  std::visit([&](const auto& e) { On(e, now); }, event);
  UnlockUnused();
  KeepStandbys();
  return out_.Take();
}

void GuardianCore::On(const CommandReceived& received, TimePoint now) {
  std::visit(
      [&](const auto& c) {
        if constexpr (std::is_same_v<decltype(c), const GuardianSecrets&>)
          out_.Add(TakeSecrets{});
        else
          Obey(c, now);
      },
      received.command);
}

void GuardianCore::On(const TerminateRequested&, TimePoint now) {
  if (!stopped_at_) {
    stopped_at_ = now;
    out_.Add(WriteStoppedRecord{newest_});
  }
  Obey(GuardianRelease{}, now);
}

bool GuardianCore::Admit(Generation generation) {
  if (generation < newest_ || generation <= 0) {
    Refuse(generation, "generation " + std::to_string(newest_) + " is newer");
    return false;
  }
  if (generation > newest_) {
    newest_ = generation;
    out_.Add(WriteRecord{newest_});
  }
  return true;
}

void GuardianCore::Refuse(Generation generation, const std::string& why) {
  out_.Note("refused a command of generation " + std::to_string(generation) + ": " + why);
  out_.Send(GuardianRefused{.generation = generation, .newest = newest_, .message = why});
}

void GuardianCore::Obey(const GuardianPrepare& prepare, TimePoint now) {
  if (leaving_ || !Admit(prepare.generation)) return;
  if (gang_.generation == prepare.generation) {
    if (Lives(prepare.generation))
      out_.Send(gang_.Prepared());
    else
      Refuse(prepare.generation, "it has been aborted");
    return;
  }
  pending_prepare_ = prepare;
  if (end_) {
    end_->answer = false;
    // Processes that are about to park may do so; nothing waits for a grace period any more.
    if (!end_->keep) end_->kill_at = std::min(end_->kill_at, now);
  } else if (gang_.terminated && !processes_.AnyToEnd(true)) {
    PrepareNow(now);
  } else {
    BeginEnd({.kill_at = now, .keep = true});
  }
}

void GuardianCore::PrepareNow(TimePoint now) {
  const bool ends = pending_prepare_->spare
                        ? processes_.KillKept(out_)
                        : processes_.KillKeptOutside(pending_prepare_->devices, out_);
  if (ends) {
    end_ = End{.kill_at = now, .keep = true};  // a port that was bound ahead stays
    return;
  }
  const GuardianPrepare prepare = *std::exchange(pending_prepare_, std::nullopt);
  for (const auto& [rank, member] : gang_.members)
    if (processes_.Find(member.process) == nullptr) out_.Add(ForgetProcess{member.process});
  gang_ = Gang{.generation = prepare.generation,
               .master = prepare.master,
               .bind_address = prepare.bind_address,
               .devices = prepare.devices};
  out_.Add(LimitMemory{prepare.memory_limit_bytes});
  out_.Add(LockDevices{gang_.devices, processes_.MaybeOfUnkillable(gang_.devices)});
}

void GuardianCore::On(const DevicesLocked& locked, TimePoint) {
  if (!locked.status.ok()) {
    CloseMasterSocket();
    gang_.FailPreparing(locked.status);
    return SendPrepared(gang_, out_);
  }
  const std::optional<NextMaster> bound = std::exchange(next_master_, std::nullopt);
  const bool fits = bound && bound->port > 0 && bound->kind == gang_.master &&
                    bound->bind_address == gang_.bind_address;
  if (fits) gang_.master_port = bound->port;
  if (bound && !fits) out_.Add(CloseMaster{});
  if (fits || gang_.master == MasterSocket::kNone)
    SendPrepared(gang_, out_);
  else
    out_.Add(BindMaster{gang_.master, gang_.bind_address});
}

void GuardianCore::On(const MasterBound& bound, TimePoint) {
  const Result<int>& port = bound.port;
  if (next_master_) {
    // Without it the next generation is prepared in two steps.
    next_master_->port = port.ok() ? *port : 0;
    out_.Send(Quiesced());
    return;
  }
  if (gang_.generation == 0) return;
  if (port.ok())
    gang_.master_port = *port;
  else
    gang_.FailPreparing(port.status());
  SendPrepared(gang_, out_);
}

void GuardianCore::Obey(const GuardianLaunch& launch, TimePoint) {
  if (leaving_ || !Admit(launch.generation)) return;
  if (!Lives(launch.generation)) return Refuse(launch.generation, "it is not prepared");
  if (gang_.members.contains(launch.rank)) return;
  if (!gang_.HasDevices(launch.devices))
    return Refuse(launch.generation, "a device of it was not prepared");
  if (gang_.node_ranks.empty()) gang_.node_ranks = launch.node_ranks;
  const bool assigns = TakesAssignments(launch);
  if (const ProcessId waiting = assigns ? processes_.FindWaiting(launch, gang_.node_ranks) : 0) {
    Assign(waiting, launch);
  } else {
    // The program of rank 0 is about to bind the port itself.
    if (gang_.master == MasterSocket::kBindOnly) CloseMasterSocket();
    gang_.members[launch.rank].process = processes_.Start(launch, out_);
  }
  if (gang_.AllLaunched()) processes_.KillKept(out_);
}

void GuardianCore::On(const ProcessStarted& started, TimePoint) {
  const auto [id, pid] = started;
  Process* process = processes_.Find(id);
  if (process == nullptr) return;
  process->pid = pid;
  if (const auto launch = std::exchange(process->starting, std::nullopt))
    Assign(id, *launch);
  else
    out_.Note("a standby was started, pid " + std::to_string(pid));
}

void GuardianCore::Assign(ProcessId id, const GuardianLaunch& launch) {
  Process& process = *processes_.Find(id);
  process.Assign(launch);
  Member& member = gang_.members[launch.rank];
  member.process = id;
  member.pid = process.pid;
  out_.Note(RankName(launch.generation, launch.rank) + " started, pid " +
            std::to_string(process.pid));
  if (launch.rank != kStoreRank)
    out_.Send(
        GuardianRankStarted{
            .generation = launch.generation, .rank = launch.rank, .pid = process.pid},
        id);
  if (TakesAssignments(launch)) {
    segments_.SendTo(id, out_);
    out_.Add(AssignProcess{.process = id,
                           .message = AssignMessage(launch),
                           .log_path = launch.log_path,
                           .listen = launch.listen,
                           .cpus = launch.cpus,
                           .devices = launch.devices});
  }
  // The port exists as long as its process, so peers of a dead one are refused instead of waiting
  // in a queue that is never accepted.
  if (launch.listen) CloseMasterSocket();
}

void GuardianCore::On(const ProcessNotStarted& failed, TimePoint now) {
  const auto& [id, why] = failed;
  Process* process = processes_.Find(id);
  if (process == nullptr) return;
  if (process->state == Process::State::kStandby) {
    out_.Note("a standby ended: it could not be started: " + why);
    ++gang_.standby_failures;
    processes_.Remove(id);
    out_.Add(ForgetProcess{id});
    return;
  }
  Member* member = gang_.MemberOf(id, *process);
  const int rank = process->rank;
  if (process->starting && process->starting->listen) CloseMasterSocket();
  if (process->pid == 0)
    processes_.Remove(id);
  else
    processes_.Kill(id, *process, out_);
  if (member != nullptr) {
    constexpr int kExitCannotStart = 127;
    ReportExit(rank, *member,
               {.exit = {.exit_code = kExitCannotStart},
                .log_tail = {"muster: this rank could not be started: " + why}},
               now);
  }
}

void GuardianCore::Obey(const GuardianStandby& standby, TimePoint) {
  if (leaving_) return;
  standby_ = standby;
}

void GuardianCore::KeepStandbys() {
  if (!standby_ || end_ || leaving_ || gang_.terminated) return;
  // Those that wait are being given to ranks.
  const bool launched = gang_.AllLaunched();
  if (!gang_.members.empty() && !launched) return;
  const int first = launched ? 0 : standby_->first;
  int missing = processes_.KillStandbysAbove(std::max(standby_->count, first), out_);
  // Beyond those that the ranks get, they must not slow down a start.
  if (!standby_->at_once && !gang_.AllStepped()) missing -= std::max(0, standby_->count - first);
  if (gang_.standby_failures > kStandbyRetries) return;
  for (; missing > 0; --missing) processes_.StartStandby(standby_->launch, out_);
}

void GuardianCore::Obey(const GuardianStop& stop, TimePoint) {
  if (!Lives(stop.generation)) return Refuse(stop.generation, "it does not run");
  out_.Note(Name(stop.generation) + ": stop: " + stop.reason);
  for (auto& [rank, member] : gang_.members) {
    if (rank == kStoreRank || member.exited) continue;
    member.asked_to_stop = true;
    if (processes_.Find(member.process)->control)
      out_.Add(SendToProcess{
          member.process, RankMessage({{"type", "stop"}, {"reason", stop.reason}}), {}});
    else
      out_.Add(SignalProcess{member.process, SIGTERM});
  }
}

void GuardianCore::Obey(const GuardianFault& fault, TimePoint) {
  if (!Lives(fault.generation) || !gang_.Runs(fault.rank))
    return Refuse(fault.generation, "rank " + std::to_string(fault.rank) + " does not run");
  out_.Note(RankName(fault.generation, fault.rank) + ": fault on request: " + fault.kind);
  const ProcessId id = gang_.members.at(fault.rank).process;
  if (fault.kind == "kill")
    out_.Add(SignalProcess{id, SIGKILL});
  else if (fault.kind == "stop")
    out_.Add(SignalProcess{id, SIGSTOP});
  else if (fault.kind == "cont")
    out_.Add(SignalProcess{id, SIGCONT});
  else
    out_.Add(SendToProcess{
        id,
        RankMessage({{"type", "fault"}, {"kind", fault.kind}, {"argument", fault.argument}}),
        {}});
}

void GuardianCore::Obey(const GuardianAbort& abort, TimePoint now) {
  if (!Admit(abort.generation)) return;
  out_.Note(Name(abort.generation) + ": abort: " + abort.reason);
  pending_prepare_.reset();
  const bool keep = abort.park_seconds > 0 && !leaving_;
  if (!keep) standby_.reset();
  if (keep) processes_.KillRanks(abort.generation, abort.kill_ranks, out_);
  if (!end_ && gang_.terminated && !processes_.AnyToEnd(keep)) return out_.Send(Quiesced());
  const bool parks = keep && !end_;
  BeginEnd(
      {.kill_at = now + FromSeconds(std::max(keep ? abort.park_seconds : abort.grace_seconds, 0.0)),
       .keep = keep,
       .answer = true,
       .next_master = {keep ? abort.next_master : MasterSocket::kNone, abort.next_bind_address}});
  if (parks)
    processes_.Park(abort.reason, out_);
  else if (!keep)
    processes_.Terminate(abort.grace_seconds > 0, out_);
}

void GuardianCore::Obey(const GuardianRelease&, TimePoint now) {
  leaving_ = true;
  pending_prepare_.reset();
  standby_.reset();
  if (!end_ && processes_.empty() && gang_.terminated)
    out_.Add(Leave{});
  else
    BeginEnd({.kill_at = now});
}

void GuardianCore::Obey(const GuardianHold& hold, TimePoint) {
  segments_.TakeOver(hold.name, out_);
}

void GuardianCore::On(const WorkerConnected& connected, TimePoint now) {
  out_.Send(GuardianHello{.pid = connected.own_pid,
                          .job = job_,
                          .generation = newest_,
                          .answers_pings = true,
                          .packets = kGuardianPackets});
  if (gang_.generation > 0 && gang_.generation == newest_) {
    const Generation generation = gang_.generation;
    out_.Send(gang_.Prepared());
    for (const auto& [rank, member] : gang_.members)
      if (rank != kStoreRank && member.pid != 0)
        out_.Send(GuardianRankStarted{.generation = generation, .rank = rank, .pid = member.pid},
                  member.process);
    for (const ReportLog::Entry& entry : gang_.reports.entries())
      out_.Send(GuardianReport{.generation = generation, .rank = entry.rank, .json = entry.json});
    for (const auto& [rank, member] : gang_.members)
      if (rank != kStoreRank && member.exited) out_.Send(ExitedNow(member, now));
  }
  segments_.SendToWorker(out_);
  if (newest_ > 0 && !end_ && gang_.terminated && !pending_prepare_) out_.Send(Quiesced());
  out_.Send(GuardianSynced{});
}

GuardianRankExited GuardianCore::ExitedNow(const Member& member, TimePoint now) const {
  GuardianRankExited exited = *member.exited;
  exited.age_seconds = ToSeconds(now - member.exited_at);
  exited.end.node_stopped =
      stopped_at_ && member.exited_at >= *stopped_at_ && exited.end.exit.signal == SIGKILL;
  return exited;
}

void GuardianCore::ReportExit(int rank, Member& member, const ProcessEnd& end, TimePoint now) {
  member.exited_at = now;
  member.exited = GuardianRankExited{.generation = gang_.generation,
                                     .rank = rank,
                                     .end = {.exit = end.exit,
                                             .ended = end_.has_value(),
                                             .out_of_memory = end.out_of_memory,
                                             .asked_to_stop = member.asked_to_stop},
                                     .log_tail = end.log_tail};
  if (!gang_.kill_reason.empty()) member.exited->log_tail.push_back("muster: " + gang_.kill_reason);
  const GuardianRankExited exited = ExitedNow(member, now);
  out_.Note(RankName(exited.generation, rank) + " ended: " + DescribeExit(exited.end.exit));
  if (rank == kStoreRank) {
    // Ranks that form would wait for the store for minutes.
    if (!Lives(gang_.generation)) return;
    gang_.kill_reason = "the store ended (" + DescribeExit(exited.end.exit) + "), see store.log";
    return processes_.KillAssigned(out_);
  }
  out_.Add(WriteExitRecord{exited});
  out_.Send(exited);
}

GuardianQuiesced GuardianCore::Quiesced() const {
  GuardianQuiesced quiesced = processes_.Quiesced(newest_);
  if (next_master_) quiesced.next_master_port = next_master_->port;
  return quiesced;
}

void GuardianCore::BeginEnd(const End& wanted) {
  CloseMasterSocket();
  gang_.terminated = false;
  if (!end_) {
    end_ = wanted;
    return;
  }
  end_->kill_at = std::min(end_->kill_at, wanted.kill_at);
  end_->keep &= wanted.keep;
  end_->answer |= wanted.answer;
  end_->next_master = wanted.next_master;
}

bool GuardianCore::Lives(Generation generation) const {
  return gang_.generation == generation && !gang_.terminated && !end_;
}

void GuardianCore::UnlockUnused() {
  const bool in_use = end_ || pending_prepare_ || !gang_.terminated || processes_.NeedLocks();
  if (in_use || gang_.devices.empty()) return;
  gang_.devices.clear();
  out_.Add(UnlockDevices{});
}

void GuardianCore::CloseMasterSocket() {
  next_master_.reset();
  out_.Add(CloseMaster{});
}

}  // namespace muster::guardian
