#include "worker/guardian/guardian_core.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "common/control_pipe/trainer_protocol.h"

namespace muster::guardian {
namespace {

using Json = nlohmann::json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Name(Generation generation) { return "g" + std::to_string(generation); }

bool Contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// A process that has used a GPU cannot change to another.
std::string DeviceOf(const GuardianLaunch& launch) {
  constexpr std::string_view kName = "CUDA_VISIBLE_DEVICES=";
  for (const std::string& entry : launch.environment)
    if (entry.starts_with(kName)) return entry.substr(kName.size());
  return {};
}

// Whether its process waits for an assignment, including the first one.
bool TakesAssignments(const GuardianLaunch& launch) {
  return launch.control &&
         std::find(launch.environment.begin(), launch.environment.end(),
                   std::string(kAssignVariable) + "=1") != launch.environment.end();
}

std::string AssignMessage(const GuardianLaunch& launch) {
  Json descriptors = {"log"};
  if (launch.listen) descriptors.push_back("listen");
  return Dump({{"type", "assign"},
               {"generation", launch.generation},
               {"rendezvous_token", launch.rendezvous_token},
               {"environment", launch.environment},
               {"descriptors", descriptors}});
}

}  // namespace

GuardianCore::GuardianCore(std::string job, Generation newest)
    : job_(std::move(job)), newest_(newest) {}

Effects GuardianCore::Handle(const Event& event, TimePoint now) {
  return std::visit([&](const auto& e) { return On(e, now); }, event);
}

Effects GuardianCore::On(const CommandReceived& received, TimePoint now) {
  std::visit([&](const auto& c) { Obey(c, now); }, received.command);
  KeepStandbys();
  return Take();
}

Effects GuardianCore::On(const TerminateRequested&, TimePoint now) {
  if (!stopped_at_) {
    stopped_at_ = now;
    effects_.push_back(WriteStoppedRecord{newest_});
  }
  Obey(GuardianRelease{}, now);
  return Take();
}

bool GuardianCore::Admit(Generation generation) {
  if (generation < newest_ || generation <= 0) {
    Refuse(generation, "generation " + std::to_string(newest_) + " is newer");
    return false;
  }
  if (generation > newest_) {
    newest_ = generation;
    effects_.push_back(WriteRecord{newest_});
  }
  return true;
}

void GuardianCore::Refuse(Generation generation, const std::string& why) {
  Note("refused a command of generation " + std::to_string(generation) + ": " + why);
  Send(GuardianRefused{generation, newest_, why});
}

void GuardianCore::Obey(const GuardianPrepare& prepare, TimePoint now) {
  if (leaving_ || !Admit(prepare.generation)) return;
  if (gang_ && gang_->generation == prepare.generation) {
    if (Lives(prepare.generation))
      Send(GuardianPrepared{prepare.generation, {}, gang_->master_port});
    else
      Refuse(prepare.generation, "it has been aborted");
    return;
  }
  pending_prepare_ = prepare;
  if (end_) {
    end_->answer = false;
    // Processes that are about to park may do so; nothing waits for a grace period any more.
    if (!end_->keep) end_->kill_at = std::min(end_->kill_at, now);
  } else if (Quiet(true)) {
    PrepareNow(prepare);
  } else {
    BeginEnd({.kill_at = now, .keep = true});
  }
}

void GuardianCore::PrepareNow(const GuardianPrepare& prepare) {
  pending_prepare_.reset();
  if (gang_)
    for (const auto& [rank, member] : gang_->members)
      if (!processes_.contains(member.process)) effects_.push_back(ForgetProcess{member.process});
  gang_ = Gang{.generation = prepare.generation, .master = prepare.master};
  if (prepare.spare) EndParkedProcesses();
  const std::optional<NextMaster> bound = std::exchange(next_master_, std::nullopt);
  const bool fits = bound && bound->port > 0 && bound->kind == prepare.master &&
                    bound->bind_address == prepare.bind_address;
  if (fits) gang_->master_port = bound->port;
  if (bound && !fits) effects_.push_back(CloseMaster{});
  if (fits || prepare.master == MasterSocket::kNone)
    SendPrepared();
  else
    effects_.push_back(BindMaster{prepare.master, prepare.bind_address});
}

Effects GuardianCore::On(const MasterBound& bound, TimePoint) {
  const Result<int>& port = bound.port;
  if (next_master_) {
    // Without it the next generation is prepared in two steps.
    next_master_->port = port.ok() ? *port : 0;
    Send(Quiesced());
    return Take();
  }
  if (!gang_) return Take();
  if (port.ok()) {
    gang_->master_port = *port;
  } else {
    gang_->error = port.status().message();
    gang_->terminated = true;
  }
  SendPrepared();
  return Take();
}

void GuardianCore::SendPrepared() {
  Send(GuardianPrepared{gang_->generation, gang_->error, gang_->master_port});
  Note(Name(gang_->generation) + ": prepared" +
       (gang_->error.empty() ? "" : ", but " + gang_->error));
}

void GuardianCore::Obey(const GuardianLaunch& launch, TimePoint) {
  if (leaving_ || !Admit(launch.generation)) return;
  if (!Lives(launch.generation)) return Refuse(launch.generation, "it is not prepared");
  if (gang_->members.contains(launch.rank)) return;
  if (gang_->node_ranks.empty()) gang_->node_ranks = launch.node_ranks;
  const bool assigns = TakesAssignments(launch);
  if (const ProcessId waiting = assigns ? FindWaiting(launch) : 0) {
    Assign(waiting, launch);
  } else {
    // The program of rank 0 is about to bind the port itself.
    if (gang_->master == MasterSocket::kBindOnly) CloseMasterSocket();
    gang_->members[launch.rank].process = Start(launch);
  }
  if (AllLaunched()) EndParkedProcesses();
}

ProcessId GuardianCore::FindWaiting(const GuardianLaunch& launch) const {
  ProcessId kept = 0;
  ProcessId standby = 0;
  ProcessId loading = 0;  // still ahead of one that would be started now
  for (const auto& [id, process] : processes_) {
    if (!process.Waits() || (process.device && *process.device != DeviceOf(launch))) continue;
    if (process.state == Process::State::kKept) {
      if (process.rank == launch.rank) return id;
      // A process whose own rank is launched here too is left to that rank.
      if (kept == 0 && !Contains(gang_->node_ranks, process.rank)) kept = id;
    } else {
      ProcessId& found = process.ready ? standby : loading;
      if (found == 0) found = id;
    }
  }
  if (kept != 0) return kept;
  return standby != 0 ? standby : loading;
}

ProcessId GuardianCore::Start(const GuardianLaunch& launch) {
  const ProcessId id = ++last_process_;
  Process& process = processes_[id];
  process.state = Process::State::kAssigned;
  process.control = launch.control;
  process.generation = launch.generation;
  process.rank = launch.rank;
  process.starting = launch;
  StartProcess start{id, launch};
  // It comes with the assignment.
  if (TakesAssignments(launch)) start.launch.listen = false;
  effects_.push_back(std::move(start));
  return id;
}

Effects GuardianCore::On(const ProcessStarted& started, TimePoint) {
  const auto [id, pid] = started;
  const auto it = processes_.find(id);
  if (it == processes_.end()) return Take();
  Process& process = it->second;
  process.pid = pid;
  const auto launch = std::exchange(process.starting, std::nullopt);
  if (!launch) {
    Note("a standby was started, pid " + std::to_string(pid));
  } else if (TakesAssignments(*launch)) {
    Assign(id, *launch);
  } else {
    BecomeMember(id, *launch);
    // The port exists as long as its process, so peers of a dead one are refused instead of waiting
    // in a queue that is never accepted.
    if (launch->listen) CloseMasterSocket();
  }
  return Take();
}

void GuardianCore::BecomeMember(ProcessId id, const GuardianLaunch& launch) {
  Process& process = processes_.at(id);
  process.state = Process::State::kAssigned;
  process.generation = launch.generation;
  process.rank = launch.rank;
  if (!process.device) process.device = DeviceOf(launch);
  Member& member = gang_->members[launch.rank];
  member.process = id;
  member.pid = process.pid;
  Note(RankName(launch.generation, launch.rank) + " started, pid " + std::to_string(process.pid));
  if (launch.rank != kStoreRank)
    Send(GuardianRankStarted{launch.generation, launch.rank, process.pid}, id);
}

void GuardianCore::Assign(ProcessId id, const GuardianLaunch& launch) {
  BecomeMember(id, launch);
  for (const Segment& segment : segments_)
    if (segment.maker != id)
      effects_.push_back(
          SendToProcess{id, Dump({{"type", "segment"}, {"name", segment.name}}), segment.name});
  effects_.push_back(
      AssignProcess{id, AssignMessage(launch), launch.log_path, launch.listen, launch.cpus});
  if (launch.listen) CloseMasterSocket();
}

Effects GuardianCore::On(const ProcessNotStarted& failed, TimePoint now) {
  const auto& [id, why] = failed;
  const auto it = processes_.find(id);
  if (it == processes_.end()) return Take();
  Process& process = it->second;
  if (process.state == Process::State::kStandby) {
    CountStandbyFailure("it could not be started: " + why);
    processes_.erase(it);
    effects_.push_back(ForgetProcess{id});
    KeepStandbys();
    return Take();
  }
  Member* member = MemberOf(id, process);
  const int rank = process.rank;
  if (process.starting && process.starting->listen) CloseMasterSocket();
  if (process.pid == 0) {
    processes_.erase(it);
  } else {
    Kill(id, process);
  }
  if (member != nullptr) {
    constexpr int kExitCannotStart = 127;
    ReportExit(rank, *member,
               {.exit = {.exit_code = kExitCannotStart},
                .log_tail = {"muster: this rank could not be started: " + why}},
               now);
  }
  return Take();
}

void GuardianCore::Obey(const GuardianStandby& standby, TimePoint) {
  if (leaving_) return;
  standby_ = standby;
}

bool GuardianCore::AllLaunched() const {
  return gang_ && !gang_->node_ranks.empty() &&
         std::ranges::all_of(gang_->node_ranks,
                             [&](int rank) { return gang_->members.contains(rank); });
}

bool GuardianCore::AllStepped() const {
  if (!gang_ || gang_->node_ranks.empty()) return false;
  return std::ranges::all_of(gang_->node_ranks, [&](int rank) {
    const auto it = gang_->members.find(rank);
    return it != gang_->members.end() && it->second.first_step && !it->second.exited;
  });
}

void GuardianCore::CountStandbyFailure(const std::string& why) {
  Note("a standby ended: " + why);
  if (gang_) ++gang_->standby_failures;
}

void GuardianCore::KeepStandbys() {
  if (!standby_ || end_ || leaving_ || !gang_ || gang_->terminated) return;
  // Those that wait are being given to ranks.
  const bool launched = AllLaunched();
  if (!gang_->members.empty() && !launched) return;
  const int first = launched ? 0 : standby_->first;
  int missing = std::max(standby_->count, first);
  for (auto& [id, process] : processes_)
    if (process.state == Process::State::kStandby && !process.being_killed && --missing < 0)
      Kill(id, process);
  // Beyond those that the ranks get, they must not slow down a start.
  if (!standby_->at_once && !AllStepped()) missing -= std::max(0, standby_->count - first);
  if (gang_->standby_failures > kStandbyRetries) return;
  for (; missing > 0; --missing) {
    const ProcessId id = ++last_process_;
    processes_[id].control = true;
    effects_.push_back(StartProcess{id, standby_->launch});
  }
}

void GuardianCore::Obey(const GuardianStop& stop, TimePoint) {
  if (!Lives(stop.generation)) return Refuse(stop.generation, "it does not run");
  Note(Name(stop.generation) + ": stop: " + stop.reason);
  const std::string message = Dump({{"type", "stop"}, {"reason", stop.reason}});
  for (auto& [rank, member] : gang_->members) {
    if (rank == kStoreRank || member.exited) continue;
    member.asked_to_stop = true;
    if (processes_.at(member.process).control)
      effects_.push_back(SendToProcess{member.process, message, {}});
    else
      effects_.push_back(SignalProcess{member.process, SIGTERM});
  }
}

void GuardianCore::Obey(const GuardianFault& fault, TimePoint) {
  const auto member = gang_ ? gang_->members.find(fault.rank) : std::map<int, Member>::iterator();
  if (!Lives(fault.generation) || member == gang_->members.end() || member->second.exited)
    return Refuse(fault.generation, "rank " + std::to_string(fault.rank) + " does not run");
  Note(RankName(fault.generation, fault.rank) + ": fault on request: " + fault.kind);
  const ProcessId id = member->second.process;
  if (fault.kind == "kill")
    effects_.push_back(SignalProcess{id, SIGKILL});
  else if (fault.kind == "stop")
    effects_.push_back(SignalProcess{id, SIGSTOP});
  else if (fault.kind == "cont")
    effects_.push_back(SignalProcess{id, SIGCONT});
  else
    effects_.push_back(SendToProcess{
        id, Dump({{"type", "fault"}, {"kind", fault.kind}, {"argument", fault.argument}}), {}});
}

void GuardianCore::Obey(const GuardianAbort& abort, TimePoint now) {
  if (!Admit(abort.generation)) return;
  Note("g" + std::to_string(abort.generation) + ": abort: " + abort.reason);
  pending_prepare_.reset();
  const bool keep = abort.park_seconds > 0 && !leaving_;
  if (!keep) standby_.reset();
  for (auto& [id, process] : processes_)
    if (keep && process.state != Process::State::kStandby &&
        process.generation == abort.generation && !process.being_killed &&
        std::ranges::find(abort.kill_ranks, process.rank) != abort.kill_ranks.end())
      Kill(id, process);
  if (Quiet(keep)) return Send(Quiesced());
  const bool parks = keep && !end_;
  BeginEnd(
      {.kill_at = now + FromSeconds(std::max(keep ? abort.park_seconds : abort.grace_seconds, 0.0)),
       .keep = keep,
       .answer = true,
       .next_master = {keep ? abort.next_master : MasterSocket::kNone, abort.next_bind_address}});
  if (parks)
    Park(abort.reason);
  else if (!keep)
    Terminate(abort.grace_seconds > 0);
}

void GuardianCore::Park(const std::string& reason) {
  for (auto& [id, process] : processes_) {
    if (process.state != Process::State::kAssigned || process.being_killed) continue;
    if (process.control) {
      effects_.push_back(SendToProcess{
          id,
          Dump({{"type", "park"}, {"generation", process.generation}, {"reason", reason}}),
          {}});
    } else {
      Kill(id, process);
    }
  }
}

void GuardianCore::Terminate(bool gently) {
  for (auto& [id, process] : processes_) {
    if (process.being_killed) continue;
    // Processes that wait have nothing to clean up.
    if (process.state != Process::State::kAssigned)
      Kill(id, process);
    else if (gently)
      effects_.push_back(SignalProcess{id, SIGTERM});
  }
}

void GuardianCore::Obey(const GuardianRelease&, TimePoint now) {
  leaving_ = true;
  pending_prepare_.reset();
  standby_.reset();
  if (!end_ && processes_.empty() && (!gang_ || gang_->terminated))
    effects_.push_back(Leave{});
  else
    BeginEnd({.kill_at = now});
}

void GuardianCore::Obey(const GuardianHold& hold, TimePoint) {
  std::erase_if(segments_, [&](const Segment& s) { return s.name == hold.name; });
  segments_.push_back({.name = hold.name});
  effects_.push_back(HoldSegment{hold.name});
}

Effects GuardianCore::On(const WorkerConnected& connected, TimePoint now) {
  Send(GuardianHello{connected.own_pid, job_, newest_, true});
  if (gang_ && gang_->generation == newest_) {
    const Generation generation = gang_->generation;
    Send(GuardianPrepared{generation, gang_->error, gang_->master_port});
    for (const auto& [rank, member] : gang_->members)
      if (rank != kStoreRank && member.pid != 0)
        Send(GuardianRankStarted{generation, rank, member.pid}, member.process);
    for (const ReportLog::Entry& entry : gang_->reports.entries())
      Send(GuardianReport{generation, entry.rank, entry.json});
    for (const auto& [rank, member] : gang_->members)
      if (rank != kStoreRank && member.exited) Send(ExitedNow(member, now));
  }
  for (const Segment& segment : segments_) Send(GuardianSegment{segment.name}, 0, segment.name);
  const bool nothing_runs = !end_ && (!gang_ || gang_->terminated);
  if (newest_ > 0 && nothing_runs && !pending_prepare_) Send(Quiesced());
  Send(GuardianSynced{});
  return Take();
}

}  // namespace muster::guardian
