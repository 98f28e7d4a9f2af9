// Gang: the newest generation that was prepared: the ranks that it has on this node, and what
// became of each.
//
// Owned by GuardianCore. Plain values and questions about them; any one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "worker/guardian/guardian_effects.h"
#include "worker/guardian/process_table.h"
#include "worker/guardian/protocol.h"
#include "worker/guardian/report_log.h"

namespace muster::guardian {

struct Member {
  ProcessId process = 0;
  std::int64_t pid = 0;
  bool first_step = false;
  bool asked_to_stop = false;
  std::optional<GuardianRankExited> exited;
  TimePoint exited_at;
};

struct Gang {
  Generation generation = 0;
  MasterSocket master = MasterSocket::kNone;
  std::string bind_address;
  std::vector<std::string> devices;  // while it lives, all of them are locked
  int master_port = 0;
  std::string error;  // of the preparation
  std::map<int, Member> members;
  std::vector<int> node_ranks;  // that are to be launched; known with the first launch
  std::string kill_reason;
  bool terminated = false;  // nothing takes part in it any more, except unkillable processes
  ReportLog reports;
  int standby_failures = 0;

  bool HasDevices(const std::vector<std::string>& wanted) const {
    return std::ranges::all_of(wanted, [&](const std::string& device) {
      return std::ranges::find(devices, device) != devices.end();
    });
  }
  void FailPreparing(const Status& why) {
    error = why.message();
    terminated = true;
  }
  GuardianPrepared Prepared() const { return {generation, error, master_port}; }
  bool Runs(int rank) const {
    const auto it = members.find(rank);
    return it != members.end() && !it->second.exited;
  }
  bool AllLaunched() const {
    const auto launched = [&](int rank) { return members.contains(rank); };
    return !node_ranks.empty() && std::ranges::all_of(node_ranks, launched);
  }
  bool AllStepped() const {
    const auto stepped = [&](int rank) { return Runs(rank) && members.at(rank).first_step; };
    return !node_ranks.empty() && std::ranges::all_of(node_ranks, stepped);
  }
  // Null for a process that serves no rank of it.
  Member* MemberOf(ProcessId id, const Process& process) {
    const auto it = members.find(process.rank);
    const bool serves = process.Serves(generation);
    return serves && it != members.end() && it->second.process == id ? &it->second : nullptr;
  }
  // Whether a member has, or had, the process.
  bool Refers(ProcessId id) const {
    return std::ranges::any_of(members, [&](const auto& m) { return m.second.process == id; });
  }
};

}  // namespace muster::guardian
