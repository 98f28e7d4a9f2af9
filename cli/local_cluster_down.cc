#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/local_cluster.h"
#include "common/base/files.h"
#include "common/base/proc_reader.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr auto kKillTimeout = std::chrono::seconds(5);

std::string Shown(const NamedProcess& process) {
  return process.program + " (pid " + std::to_string(process.id.pid) + ")";
}

// The guardian that a record names, if it still lives.
std::optional<ProcessId> LivingGuardian(const std::string& record, const std::string& boot_id) {
  const auto text = ReadFile(record, 64 << 10);
  if (!text.ok()) return std::nullopt;
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("pid") || !json["pid"].is_number_integer())
    return std::nullopt;
  if (json.contains("boot_id") && json["boot_id"].is_string() && json["boot_id"] != boot_id)
    return std::nullopt;
  if (!json.contains("start_time") || !json["start_time"].is_number_integer()) return std::nullopt;
  const ProcessId guardian{json["pid"].get<pid_t>(), json["start_time"].get<std::uint64_t>()};
  return IsAlive(guardian) ? std::optional(guardian) : std::nullopt;
}

}  // namespace

std::vector<NamedProcess> LocalCluster::Daemons() const {
  std::vector<NamedProcess> out;
  if (const auto owner = LockedPidFileOwner(paths_.CoordinatorPid()))
    out.push_back({*owner, "coordinator"});
  for (const std::string& node : NodesOnDisk())
    if (const auto owner = LockedPidFileOwner(paths_.WorkerPid(node)))
      out.push_back({*owner, "worker " + node});
  return out;
}

std::vector<NamedProcess> LocalCluster::GuardiansOf(const std::string& node) const {
  const std::string boot_id = BootId();
  std::vector<NamedProcess> out;
  std::error_code error;
  for (const auto& job : fs::directory_iterator(paths_.JobsDir(node), error))
    if (const auto guardian = LivingGuardian(job.path().string() + "/guardian.json", boot_id))
      out.push_back(
          {*guardian, "guardian of job " + job.path().filename().string() + " on " + node});
  return out;
}

void LocalCluster::EndAll(const std::vector<NamedProcess>& processes, Duration grace,
                          DownReport* report) {
  std::vector<ProcessId> ids;
  for (const NamedProcess& process : processes) {
    ids.push_back(process.id);
    SignalProcess(process.id, grace > Duration::zero() ? SIGTERM : SIGKILL);
  }
  std::vector<ProcessId> left = WaitUntilGone(
      ids, Deadline::After(grace > Duration::zero() ? grace : Duration(kKillTimeout)));
  for (const ProcessId& id : left) SignalProcess(id, SIGKILL);
  left = WaitUntilGone(left, Deadline::After(kKillTimeout));
  for (const NamedProcess& process : processes) {
    const bool gone = !IsAlive(process.id);
    (gone ? report->ended : report->left).push_back(Shown(process));
  }
}

Result<DownReport> LocalCluster::Down(Duration timeout) {
  DownReport report;
  std::error_code error;
  if (!fs::exists(paths_.dir, error)) return report;
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, Lock());

  // First who decides, so that nobody starts anew what ends below.
  EndAll(Daemons(), timeout, &report);

  std::vector<NamedProcess> guardians;
  for (const std::string& node : NodesOnDisk()) {
    const std::vector<NamedProcess> of_node = GuardiansOf(node);
    guardians.insert(guardians.end(), of_node.begin(), of_node.end());
  }
  std::vector<NamedProcess> ranks;
  for (const NamedProcess& guardian : guardians)
    for (const ProcessId& id : Descendants(guardian.id)) ranks.push_back({id, "rank process"});
  EndAll(guardians, timeout, &report);

  // A guardian takes its ranks along; what outlived it is ended here.
  std::vector<NamedProcess> rest;
  for (const NamedProcess& rank : ranks)
    if (IsAlive(rank.id)) rest.push_back(rank);
  EndAll(rest, Duration::zero(), &report);
  EndAll(ProcessesOfDirectory(paths_.dir), Duration::zero(), &report);
  if (network_.Exists()) {
    MUSTER_RETURN_IF_ERROR(network_.Remove());
    report.ended.push_back("network namespaces");
  }
  return report;
}

Status LocalCluster::CheckLink(const std::string& node) const { return network_.CheckLink(node); }

Status LocalCluster::SetLink(const std::string& node, bool up) {
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, Lock());
  return network_.SetLink(node, up);
}

}  // namespace muster
