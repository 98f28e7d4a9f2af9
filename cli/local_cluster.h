// LocalCluster: the daemons of a cluster that lives in one directory of this machine.
//
// `muster up` and `muster down` are this class. Both hold DIR/up.lock, so that two of them never
// work on one directory at once. Up is idempotent: what runs is left alone, what is missing is
// brought back under its old name and port. Down ends coordinator, workers, guardians and whatever
// program of Muster still names the directory, and says so when something is left.
//
// One thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/cluster_client.h"
#include "cli/local_cluster_network.h"
#include "cli/processes.h"
#include "common/base/cluster_paths.h"
#include "common/base/result.h"

namespace muster {

struct UpOptions {
  int nodes = 0;       // 0: as many as the directory had, or one
  int slots = 0;       // per node; 0: as before, or what the worker takes by itself
  std::string listen;  // empty: the coordinator's former port, or any
  std::string http;
  std::string log_level;
  std::string webhook_hosts;         // of the coordinator; empty: none
  std::optional<bool> netns;         // nodes in network namespaces; none: as before, or no
  std::optional<bool> allow_faults;  // `muster fault` works; none: as before, or no
  // The first so many nodes are of the first failure domain, and so on; 0: as before, or none.
  int failure_domains = 0;
  Duration ready_within = std::chrono::seconds(15);
};

struct UpReport {
  Endpoint endpoint;
  v1::ListNodesResponse nodes;
  std::vector<std::string> started;  // "coordinator", "node-1", ...; empty: all ran already
  std::string network_namespace;     // the hub's, where endpoint.http is to be asked; empty: none
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

  // Takes a node's cable out, or puts it in again; CheckLink says whether there is one. kNotFound:
  // the node has no network namespace of its own. That the coordinator allows it is the caller's
  // to ask.
  Status CheckLink(const std::string& node) const;
  Status SetLink(const std::string& node, bool up);

 private:
  struct Record {
    int nodes = 0;
    int slots = 0;
    bool netns = false;
    bool allow_faults = false;
    int failure_domains = 0;
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
  Status StartCoordinatorAt(const std::string& listen, const std::string& http,
                            const UpOptions& options);
  Status WaitForEndpoint(const ProcessId& process, Deadline deadline);
  std::vector<std::string> NodeNames() const;
  Status StartWorkers(const UpOptions& options, UpReport* report);
  std::vector<std::string> WorkerCommand(int index, const UpOptions& options) const;
  Status WaitForNodes(const std::vector<std::string>& names, Deadline deadline, UpReport* report);
  Result<ProcessId> StartInPlace(const std::string& name, const std::vector<std::string>& argv,
                                 const std::string& log) const;
  Status Start(const std::string& name, const std::vector<std::string>& argv,
               const std::string& log);
  Status DaemonEnded(const std::string& name, const std::string& log) const;
  void EndStarted();

  std::vector<NamedProcess> Daemons() const;
  std::vector<NamedProcess> GuardiansOf(const std::string& node) const;
  void EndAll(const std::vector<NamedProcess>& processes, Duration grace, DownReport* report);

  ClusterClient& client_;
  const ClusterPaths& paths_;
  std::string binary_dir_;
  LocalClusterNetwork network_;
  Record record_;  // what Up is to bring about
  struct Started {
    ProcessId id;
    std::string log;
    std::int64_t log_offset;  // where its own lines begin
  };
  std::map<std::string, Started> started_;  // by "coordinator" or node name
};

}  // namespace muster
