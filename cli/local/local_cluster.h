// LocalCluster: the daemons of a cluster that lives in one directory of this machine.
//
// Up and Down hold DIR/up.lock, so that two of them never act on one directory at the same time. Up
// is idempotent: running processes are left alone, missing ones are restarted under their old name
// and port. Down ends the coordinator, workers, guardians and any other program of Muster with the
// directory among its arguments, and reports what is left.
//
// One thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/base/processes.h"
#include "cli/client/cluster_client.h"
#include "cli/local/coordinator_group.h"
#include "cli/local/local_cluster_network.h"
#include "common/base/cluster_paths.h"
#include "common/base/result.h"

namespace muster {

struct UpOptions {
  int nodes = 0;       // 0: as many as the directory had, or one
  int slots = 0;       // per node; 0: as before, or the worker's default
  std::string listen;  // empty: the coordinator's former port, or any
  std::string http;
  std::string log_level;
  std::string webhook_hosts;         // of the coordinator; empty: none
  std::optional<bool> netns;         // nodes in network namespaces; none: as before, or no
  std::optional<bool> allow_faults;  // `muster fault` works; none: as before, or no
  // Number of failure domains, each with an equal share of the nodes; 0: as before, or none.
  int failure_domains = 0;
  std::string fake_gpus;  // file of muster-worker --fake-gpus; empty: as before, or real GPUs
  int coordinators = 0;   // 0: as before, or one
  std::string etcd;       // kLocalEtcd or URLs, for the state; empty: as before, or a database
  Duration ready_within = std::chrono::seconds(15);
};

struct UpReport {
  Endpoint endpoint;         // of the coordinator that leads
  std::string coordinators;  // addresses of all, where there are several
  v1::ListNodesResponse nodes;
  int ready = 0;                     // of those that were wanted
  std::vector<std::string> started;  // "coordinator", "node-1", ...; empty: all were running
  std::string network_namespace;     // the hub's, which has endpoint.http; empty: none
};

struct DownReport {
  std::vector<std::string> ended;  // "worker node-1 (pid 12)"
  std::vector<std::string> left;   // what could not be ended
};

class LocalCluster {
 public:
  LocalCluster(ClusterClient& client, std::string binary_dir);

  Result<UpReport> Up(const UpOptions& options);
  Result<DownReport> Down(Duration timeout);

  // Cuts a node's link, or restores it. kNotFound: the node has no network namespace of its own.
  // The caller asks the coordinator whether faults are allowed.
  Status CheckLink(const std::string& node) const;
  Status SetLink(const std::string& node, bool up);

 private:
  struct Record {
    int nodes = 0;
    int slots = 0;
    bool netns = false;
    bool allow_faults = false;
    int failure_domains = 0;
    std::string fake_gpus;  // absolute
  };

  Result<UniqueFd> Lock();
  Record ReadRecord() const;
  Status WriteRecord(const Record& record) const;
  static Record Wanted(const UpOptions& options, const Record& before);
  Status CheckChanges(const UpOptions& options, const Record& before) const;
  std::set<std::string> PlacesInUse() const;
  Status PrepareNetwork(const std::set<std::string>& in_use);
  Status StartAll(const UpOptions& options, UpReport* report);
  Status CheckBinaries() const;
  std::vector<std::string> NodesOnDisk() const;

  Status StartCoordinator(const UpOptions& options, UpReport* report);
  Status StartCoordinators(const UpOptions& options, UpReport* report);
  void AddCommonFlags(const UpOptions& options, std::vector<std::string>* argv) const;
  Status StartCoordinatorAt(const std::string& listen, const std::string& http,
                            const UpOptions& options);
  Status WaitForEndpoint(const ProcessId& process, Deadline deadline);
  std::vector<std::string> NodeNames() const;
  Status StartWorkers(const UpOptions& options, UpReport* report);
  std::vector<std::string> WorkerCommand(int index, const UpOptions& options) const;
  Status CheckLeader();
  Status WaitForNodes(const std::vector<std::string>& names, Deadline deadline, UpReport* report);
  Result<ProcessId> StartInPlace(const std::string& name, const std::vector<std::string>& argv,
                                 const std::string& log) const;
  Status Start(const std::string& name, const std::vector<std::string>& argv,
               const std::string& log);
  Status DaemonEnded(const std::string& name, const std::string& log) const;
  std::string LastWords(const std::set<std::string>& nodes) const;
  void EndStarted();

  std::vector<NamedProcess> Daemons() const;
  std::vector<NamedProcess> GuardiansOf(const std::string& node) const;
  void EndAll(const std::vector<NamedProcess>& processes, Duration grace, DownReport* report);

  ClusterClient& client_;
  const ClusterPaths& paths_;
  std::string binary_dir_;
  LocalClusterNetwork network_;
  CoordinatorGroup group_;
  Record record_;  // the cluster that Up brings about
  struct Started {
    ProcessId id;
    std::string log;
    std::int64_t log_offset;  // where its own lines begin
  };
  std::map<std::string, Started> started_;  // by "coordinator", node name, or name in the group
};

}  // namespace muster
