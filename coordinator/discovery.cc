#include "coordinator/discovery.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/net/ip_address.h"
#include "common/rpc/endpoint.h"
#include "common/telemetry/log.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kLookInterval{1};

std::string HostAndPort(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos && host.front() != '[';
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string ServiceDiscovery(const Controller& controller,
                             const std::vector<std::string>& coordinators, bool by_tls,
                             const DiscoveryLabels& labels) {
  nlohmann::json groups = nlohmann::json::array();
  const auto add = [&](const std::string& target, nlohmann::json own) {
    const std::pair<const char*, const std::string&> shared[] = {
        {"cluster", labels.cluster},
        {"slurm_cluster", labels.slurm_cluster},
        {"slurm_job_id", labels.slurm_job_id}};
    for (const auto& [name, value] : shared)
      if (!value.empty()) own[name] = value;
    if (by_tls) own["__scheme__"] = "https";
    groups.push_back({{"targets", {target}}, {"labels", std::move(own)}});
  };
  for (const std::string& address : coordinators)
    if (!address.empty()) add(address, {{"component", "coordinator"}});
  for (const NodeView& view : controller.Nodes()) {
    if (!view.connected || view.record->metrics_port == 0) continue;
    nlohmann::json own = {{"component", "worker"}, {"node", view.record->name.value}};
    if (!view.record->pilot.empty()) own["pilot"] = view.record->pilot;
    add(HostAndPort(view.record->address, view.record->metrics_port), std::move(own));
  }
  // Bytes that are not UTF-8, as a directory's name may contain, must not end the server.
  return groups.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::string> ReachableAddress(const std::string& bound,
                                     const std::function<Result<std::string>()>& own) {
  HostPort address = SplitAddress(bound);
  const Result<IpAddress> host = IpAddress::Parse(address.host);
  if (!host.ok() || !host->is_unspecified()) return bound;
  MUSTER_ASSIGN_OR_RETURN(address.host, own());
  return JoinAddress(address);
}

DiscoveryLabels LabelsOfEnvironment(const std::string& cluster) {
  return {cluster, Variable("SLURM_CLUSTER_NAME"), Variable("SLURM_JOB_ID")};
}

DiscoveryFile::DiscoveryFile(EventLoop& loop, std::string path, std::function<std::string()> list)
    : loop_(loop),
      path_(std::move(path)),
      list_(std::move(list)),
      timer_(loop),
      pool_("discovery", 1, 1) {}

void DiscoveryFile::Look() {
  std::string text = list_();
  const auto look_later = [this] { timer_.Start(kLookInterval, [this] { Look(); }); };
  const bool known = text == written_;
  const bool taken = pool_.TrySubmit([this, known, text = std::move(text)]() mutable {
    std::error_code error;
    const bool there = known && std::filesystem::exists(path_, error);
    Status status = there ? OkStatus() : WriteFileAtomically(path_, text + "\n");
    loop_.Post([this, text = std::move(text), status = std::move(status)]() mutable {
      OnWritten(std::move(text), status);
    });
  });
  if (!taken) look_later();
}

void DiscoveryFile::OnWritten(std::string text, const Status& status) {
  if (status.ok()) {
    written_ = std::move(text);
  } else if (!failed_) {
    Log().warn("--file-sd: {}; tried again each second", status.message());
  }
  failed_ = !status.ok();
  timer_.Start(kLookInterval, [this] { Look(); });
}

}  // namespace muster
