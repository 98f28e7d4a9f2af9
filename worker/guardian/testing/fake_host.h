// A fake of everything around GuardianCore, without processes.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "worker/guardian/guardian_core.h"

namespace muster::guardian {

// Processes as the core requests them. They die of SIGKILL, and park on request unless they are
// deaf.
class FakeHost {
 public:
  struct Process {
    bool deaf = false;
    bool unkillable = false;
    bool killed = false;  // its end is not yet reported
    Generation generation = 0;
    int rank = 0;
    bool parked = false;
    std::vector<std::string> devices;  // whose locks it shares
  };

  void Do(const Effects& effects) {
    for (const Effect& effect : effects) std::visit([this](const auto& e) { Do(e); }, effect);
  }
  void Command(const GuardianCommand& command) { Do(core.Handle(CommandReceived{command}, now)); }
  void Say(ProcessId id, const std::string& json, bool descriptor = false) {
    Do(core.Handle(MessageReceived{.process = id, .json = json, .has_descriptor = descriptor},
                   now));
  }
  void Die(ProcessId id, ProcessExit exit) {
    processes.erase(id);
    Do(core.Handle(ProcessEnded{id, {.exit = exit}}, now));
  }

  // Everything that is under way happens: deaths, answers, ticks.
  void Settle() {
    for (int round = 0; round < 5000; ++round) {
      for (const auto& [id, process] : std::map(processes))
        if (process.killed && !process.unkillable) Die(id, {.signal = SIGKILL});
      for (const ProcessId id : std::exchange(parking_, {})) Park(id);
      Do(core.Handle(Tick{}, now));
      if (!core.ending()) return;
      now += kEndingTick;
    }
    FAIL() << "it never comes to an end";
  }
  void Park(ProcessId id) {
    const auto it = processes.find(id);
    if (it == processes.end() || it->second.killed) return;
    it->second.parked = true;
    Say(id,
        R"({"type":"parked","step":1,"generation":)" + std::to_string(it->second.generation) + "}");
  }

  // Runs, and takes part in a generation.
  std::vector<ProcessId> Working() const {
    std::vector<ProcessId> ids;
    for (const auto& [id, process] : processes)
      if (process.generation > 0 && !process.parked) ids.push_back(id);
    return ids;
  }
  ProcessId Of(Generation generation, int rank) const {
    for (const auto& [id, process] : processes)
      if (process.generation == generation && process.rank == rank) return id;
    return 0;
  }
  template <typename T>
  std::vector<T> Told() const {
    std::vector<T> found;
    for (const GuardianEvent& event : told)
      if (const T* one = std::get_if<T>(&event)) found.push_back(*one);
    return found;
  }

  GuardianCore core{"0123456789", 0};
  TimePoint now;
  std::map<ProcessId, Process> processes;
  std::vector<GuardianEvent> told;
  std::vector<std::string> sent;  // to processes: "3 park"
  std::set<std::string> segments;
  bool starts_fail = false;
  bool port_fails = false;
  bool left = false;
  int starts = 0;
  int binds = 0;
  std::vector<std::int64_t> strays;  // what ended processes have left behind
  std::set<std::string> locked;      // devices, by the guardian
  std::set<std::string> foreign;     // by others
  std::size_t told_before_unlock = 0;
  std::uint64_t memory_limit = 0;

 private:
  bool HasLocks(const std::vector<std::string>& devices) const {
    return std::ranges::all_of(devices,
                               [&](const auto& device) { return locked.contains(device); });
  }
  void Do(const SendToWorker& e) { told.push_back(e.event); }
  void Do(const StartProcess& e) {
    ++starts;
    if (starts_fail) return Do(core.Handle(ProcessNotStarted{e.process, "no such program"}, now));
    Process& process = processes[e.process];
    process.generation = e.launch.generation;
    process.rank = e.launch.rank;
    process.devices = e.launch.devices;
    EXPECT_TRUE(HasLocks(process.devices));
    Do(core.Handle(ProcessStarted{e.process, 1000 + e.process}, now));
  }
  void Do(const AssignProcess& e) {
    const auto json = nlohmann::json::parse(e.message);
    sent.push_back(std::to_string(e.process) + " assign");
    const auto it = processes.find(e.process);
    if (it == processes.end())
      return Do(core.Handle(ProcessNotStarted{e.process, "its process is gone"}, now));
    it->second.generation = json["generation"];
    it->second.rank = std::stoi(json["environment"].back().get<std::string>().substr(5));
    it->second.parked = false;
    it->second.devices = e.devices;
    EXPECT_TRUE(HasLocks(e.devices));
    const auto names = json["descriptors"].get<std::vector<std::string>>();
    EXPECT_EQ(std::ranges::count(names, "lock"), std::ssize(e.devices));
  }
  void Do(const SendToProcess& e) {
    const auto json = nlohmann::json::parse(e.message);
    sent.push_back(std::to_string(e.process) + " " + json["type"].get<std::string>() +
                   (e.segment.empty() ? "" : " " + e.segment));
    if (json["type"] == "park" && !processes[e.process].deaf) parking_.push_back(e.process);
  }
  void Do(const SignalProcess& e) {
    const auto it = processes.find(e.process);
    if (it != processes.end() && e.signal == SIGKILL) it->second.killed = true;
  }
  // A process of its own stands in the way only if it resists.
  void Do(const LockDevices& e) {
    const auto wants = [&](const std::string& device) {
      return std::ranges::find(e.devices, device) != e.devices.end();
    };
    std::erase_if(locked, [&](const std::string& device) {
      return !wants(device) || std::ranges::find(e.anew, device) != e.anew.end();
    });
    Status status;
    for (const std::string& device : e.devices) {
      const bool resists = std::ranges::any_of(processes, [&](const auto& entry) {
        const std::vector<std::string>& its = entry.second.devices;
        return entry.second.unkillable && std::ranges::find(its, device) != its.end();
      });
      if (!locked.contains(device) && (resists || foreign.contains(device)))
        status = AlreadyExists("device " + device + " is still held");
    }
    if (status.ok()) locked.insert(e.devices.begin(), e.devices.end());
    Do(core.Handle(DevicesLocked{status}, now));
  }
  void Do(const LimitMemory& e) { memory_limit = e.bytes; }
  void Do(const UnlockDevices&) {
    for (const auto& [id, process] : processes)
      EXPECT_TRUE(process.devices.empty() || process.unkillable) << id;
    locked.clear();
    told_before_unlock = told.size();
  }
  void Do(const BindMaster&) {
    ++binds;
    Do(core.Handle(
        MasterBound{port_fails ? Result<int>(Unavailable("no port")) : Result<int>(4711)}, now));
  }
  void Do(const Sweep& e) {
    SweepResult result;
    result.left = strays;
    if (e.kill) strays.clear();
    for (auto& [id, process] : processes) {
      if (std::ranges::find(e.keep, id) != e.keep.end()) continue;
      result.left.push_back(1000 + id);
      process.killed |= e.kill;
    }
    result.none_left = result.left.empty();
    Do(core.Handle(Swept{result}, now));
  }
  void Do(const HoldSegment& e) { segments.insert(e.name); }
  void Do(const ReleaseSegment& e) { segments.erase(e.name); }
  void Do(const WriteExitRecord&) {}
  void Do(const TakeSecrets&) {}
  void Do(const Leave&) { left = true; }
  void Do(const ForgetProcess&) {}
  void Do(const CloseMaster&) {}
  void Do(const WriteRecord&) {}
  void Do(const WriteStoppedRecord&) {}
  void Do(const LogNote&) {}

  std::vector<ProcessId> parking_;
};

inline GuardianLaunch Rank(Generation generation, int rank, const std::string& gpu = "") {
  return {.generation = generation,
          .rank = rank,
          .argv = {"trainer"},
          .environment = {"CUDA_VISIBLE_DEVICES=" + gpu, "MUSTER_ASSIGN=1",
                          "RANK=" + std::to_string(rank)},
          .control = true,
          .node_ranks = {0, 1}};
}

// The rank's own device is its gpu.
inline GuardianLaunch RankOn(Generation generation, int rank, const std::string& gpu) {
  GuardianLaunch launch = Rank(generation, rank, gpu);
  launch.devices = {gpu};
  return launch;
}

inline GuardianLaunch Program(Generation generation, int rank) {
  return {.generation = generation, .rank = rank, .argv = {"program"}, .node_ranks = {0, 1}};
}

inline GuardianAbort ParkAll(Generation generation, std::vector<int> kill_ranks = {}) {
  return {.generation = generation,
          .reason = "test",
          .park_seconds = 1,
          .kill_ranks = std::move(kill_ranks)};
}

}  // namespace muster::guardian
