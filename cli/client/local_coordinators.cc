#include "cli/client/local_coordinators.h"

#include "cli/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/locked_record.h"
#include "common/rpc/coordinator_addresses.h"

namespace muster {
namespace {

constexpr std::int64_t kMaxBytes = 64 << 10;

std::string PathIn(const std::string& dir) { return dir + "/coordinators.json"; }

}  // namespace

std::string LocalCoordinators::CoordinatorName(std::size_t index) {
  return "coordinator-" + std::to_string(index + 1);
}

std::string LocalCoordinators::MemberName(std::size_t index) {
  return "etcd-" + std::to_string(index + 1);
}

ClusterPaths LocalCoordinators::PathsOf(std::size_t coordinator) const {
  return {dir + "/coordinators/" + CoordinatorName(coordinator)};
}

std::string LocalCoordinators::Addresses() const {
  return CoordinatorAddresses::Text(coordinators);
}

Result<LocalCoordinators> ReadLocalCoordinators(const std::string& dir) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(PathIn(dir), kMaxBytes));
  LocalCoordinators local{.dir = dir};
  try {
    const auto json = nlohmann::json::parse(text);
    json.at("etcd").get_to(local.etcd);
    json.at("coordinators").get_to(local.coordinators);
    json.at("etcd_clients").get_to(local.etcd_clients);
    json.at("etcd_peers").get_to(local.etcd_peers);
  } catch (const nlohmann::json::exception& error) {
    return DataLoss(PathIn(dir) + " is damaged: " + error.what());
  }
  return local;
}

Status WriteLocalCoordinators(const LocalCoordinators& local) {
  const nlohmann::json json = {{"etcd", local.etcd},
                               {"coordinators", local.coordinators},
                               {"etcd_clients", local.etcd_clients},
                               {"etcd_peers", local.etcd_peers}};
  return WriteFileAtomically(PathIn(local.dir), json.dump() + "\n");
}

Result<Endpoint> FindLocalLeader(const LocalCoordinators& local) {
  Endpoint leader;
  for (std::size_t i = 0; i < local.coordinators.size(); ++i) {
    const ClusterPaths paths = local.PathsOf(i);
    // A file outlives a coordinator that was killed.
    if (!IsRecordLocked(paths.CoordinatorPid())) continue;
    const auto endpoint = ReadEndpoint(paths.Endpoint());
    if (endpoint.ok() && endpoint->epoch > leader.epoch) leader = *endpoint;
  }
  if (leader.epoch == 0)
    return Unavailable("no coordinator of " + local.dir +
                       " leads at the moment\n  next: muster coordinators --dir " +
                       ShellWord(local.dir));
  return leader;
}

}  // namespace muster
