#include "worker/guardian/process_table.h"

#include <signal.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/base/json.h"
#include "common/control_pipe/trainer_protocol.h"

namespace muster::guardian {
namespace {

// A process that has used a GPU cannot change to another.
std::string DeviceOf(const GuardianLaunch& launch) {
  constexpr std::string_view kName = "CUDA_VISIBLE_DEVICES=";
  for (const std::string& entry : launch.environment)
    if (entry.starts_with(kName)) return entry.substr(kName.size());
  return {};
}

template <typename Values>
bool Contains(const Values& values, const typename Values::value_type& value) {
  return std::ranges::find(values, value) != values.end();
}

}  // namespace

bool TakesAssignments(const GuardianLaunch& launch) {
  return launch.control && Contains(launch.environment, std::string(kAssignVariable) + "=1");
}

bool Process::Serves(Generation of) const {
  return (state == State::kAssigned || state == State::kParked) && generation == of;
}

void Process::Assign(const GuardianLaunch& launch) {
  state = State::kAssigned;
  generation = launch.generation;
  rank = launch.rank;
  devices = launch.devices;
  if (!device) device = DeviceOf(launch);
}

Process* ProcessTable::Find(ProcessId id) {
  const auto it = processes_.find(id);
  return it == processes_.end() ? nullptr : &it->second;
}

ProcessId ProcessTable::FindWaiting(const GuardianLaunch& launch,
                                    const std::vector<int>& node_ranks) const {
  ProcessId kept = 0;
  ProcessId standby = 0;
  ProcessId loading = 0;  // still ahead of one that would be started now
  for (const auto& [id, process] : processes_) {
    if (!process.Waits() || (process.device && *process.device != DeviceOf(launch))) continue;
    if (process.state == Process::State::kKept) {
      if (process.rank == launch.rank) return id;
      // A process whose own rank is launched here too is left to that rank.
      if (kept == 0 && !Contains(node_ranks, process.rank)) kept = id;
    } else {
      ProcessId& found = process.ready ? standby : loading;
      if (found == 0) found = id;
    }
  }
  if (kept != 0) return kept;
  return standby != 0 ? standby : loading;
}

ProcessId ProcessTable::Start(const GuardianLaunch& launch, EffectList& out) {
  const ProcessId id = ++last_;
  processes_[id] = {.state = Process::State::kAssigned,
                    .control = launch.control,
                    .generation = launch.generation,
                    .rank = launch.rank,
                    .starting = launch};
  StartProcess start{id, launch};
  // They come with the assignment.
  if (TakesAssignments(launch)) {
    start.launch.listen = false;
    start.launch.devices.clear();
  }
  out.Add(std::move(start));
  return id;
}

void ProcessTable::StartStandby(const GuardianLaunch& launch, EffectList& out) {
  const ProcessId id = ++last_;
  processes_[id].control = true;
  out.Add(StartProcess{id, launch});
}

void ProcessTable::Kill(ProcessId id, Process& process, EffectList& out) {
  process.being_killed = true;
  out.Add(SignalProcess{id, SIGKILL});
}

void ProcessTable::KillRanks(Generation generation, const std::vector<int>& ranks,
                             EffectList& out) {
  for (auto& [id, process] : processes_)
    if (process.state != Process::State::kStandby && process.generation == generation &&
        !process.being_killed && Contains(ranks, process.rank))
      Kill(id, process, out);
}

void ProcessTable::KillAssigned(EffectList& out) {
  for (auto& [id, process] : processes_)
    if (process.state == Process::State::kAssigned) Kill(id, process, out);
}

int ProcessTable::KillStandbysAbove(int number, EffectList& out) {
  for (auto& [id, process] : processes_)
    if (process.state == Process::State::kStandby && !process.being_killed && --number < 0)
      Kill(id, process, out);
  return std::max(number, 0);
}

template <typename Which>
bool ProcessTable::KillKeptIf(Which which, EffectList& out) {
  bool any = false;
  for (auto& [id, process] : processes_)
    if (process.state == Process::State::kKept && !process.being_killed && which(process)) {
      out.Note("nothing is left to do for the parked process " + std::to_string(process.pid));
      Kill(id, process, out);
      any = true;
    }
  return any;
}

bool ProcessTable::KillKept(EffectList& out) {
  return KillKeptIf([](const Process&) { return true; }, out);
}

bool ProcessTable::KillKeptOutside(const std::vector<std::string>& devices, EffectList& out) {
  const auto is_outside = [&](const std::string& device) { return !Contains(devices, device); };
  return KillKeptIf([&](const Process& p) { return std::ranges::any_of(p.devices, is_outside); },
                    out);
}

void ProcessTable::KillAll(bool keep, EffectList& out) {
  for (auto& [id, process] : processes_)
    if (!process.being_killed && !(keep && process.Waits())) Kill(id, process, out);
}

void ProcessTable::Park(const std::string& reason, EffectList& out) {
  for (auto& [id, process] : processes_) {
    if (process.state != Process::State::kAssigned || process.being_killed) continue;
    if (process.control)
      out.Add(SendToProcess{
          id,
          RankMessage({{"type", "park"}, {"generation", process.generation}, {"reason", reason}}),
          {}});
    else
      Kill(id, process, out);
  }
}

void ProcessTable::Terminate(bool gently, EffectList& out) {
  for (auto& [id, process] : processes_) {
    if (process.being_killed) continue;
    // Processes that wait have nothing to clean up.
    if (process.state != Process::State::kAssigned)
      Kill(id, process, out);
    else if (gently)
      out.Add(SignalProcess{id, SIGTERM});
  }
}

void ProcessTable::KeepParked() {
  for (auto& [id, process] : processes_)
    if (process.state == Process::State::kParked) process.state = Process::State::kKept;
}

bool ProcessTable::AnyToEnd(bool keep) const {
  return std::ranges::any_of(processes_, [&](const auto& entry) {
    const Process& process = entry.second;
    return !Contains(unkillable_, process.pid) && (!keep || !process.Waits());
  });
}

Sweep ProcessTable::SweepAllBut(bool keep, bool kill) const {
  Sweep sweep{.kill = kill};
  for (const auto& [id, process] : processes_)
    if (keep && process.Waits()) sweep.keep.push_back(id);
  return sweep;
}

GuardianQuiesced ProcessTable::Quiesced(Generation newest) const {
  GuardianQuiesced quiesced{.generation = newest, .unkillable_pids = unkillable_};
  for (const auto& [id, process] : processes_) {
    if (process.being_killed) continue;
    if (process.state == Process::State::kKept) quiesced.parked_ranks.push_back(process.rank);
    if (process.state == Process::State::kStandby) ++quiesced.standbys;
  }
  std::ranges::sort(quiesced.parked_ranks);
  return quiesced;
}

bool ProcessTable::AreUnkillable(const std::vector<std::int64_t>& pids) const {
  return !pids.empty() &&
         std::ranges::all_of(pids, [&](std::int64_t pid) { return Contains(unkillable_, pid); });
}

std::vector<std::string> ProcessTable::MaybeOfUnkillable(
    const std::vector<std::string>& devices) const {
  std::vector<std::string> maybe = unkillable_.empty() ? std::vector<std::string>{} : devices;
  for (const auto& [id, process] : processes_)
    if (process.Waits())
      std::erase_if(maybe, [&](const auto& device) { return Contains(process.devices, device); });
  return maybe;
}

bool ProcessTable::NeedLocks() const {
  const auto is_descendant = [&](std::int64_t pid) {
    return std::ranges::none_of(processes_, [&](const auto& p) { return p.second.pid == pid; });
  };
  return AnyToEnd(false) || std::ranges::any_of(unkillable_, is_descendant);
}

bool ProcessTable::SetUnkillable(const std::vector<std::int64_t>& pids, TimePoint now) {
  look_at_ = now + kUnkillableTick;
  return std::exchange(unkillable_, pids) != pids;
}

std::optional<Sweep> ProcessTable::LookForUnkillable(TimePoint now, bool beside) {
  if (unkillable_.empty() || now < look_at_) return std::nullopt;
  look_at_ = now + kUnkillableTick;
  if (!beside) return SweepAllBut(true, true);
  Sweep look;  // descendants of its ranks are the living generation's
  for (const auto& [id, process] : processes_)
    if (!Contains(unkillable_, process.pid)) look.keep.push_back(id);
  return look;
}

bool ProcessTable::NoteUnkillable(const SweepResult& result, bool beside) {
  const bool all_gone = result.none_left && (beside || !AnyToEnd(true));
  // One that has just ended may be neither a living process nor waited for yet.
  if (unkillable_.empty() || (!all_gone && result.left.empty())) return false;
  if (!beside) return std::exchange(unkillable_, result.left) != result.left;
  const auto ended = [&](std::int64_t pid) { return !Contains(result.left, pid); };
  return std::erase_if(unkillable_, ended) > 0;
}

}  // namespace muster::guardian
