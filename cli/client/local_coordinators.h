// LocalCoordinators: the coordinators of a cluster of this machine that keeps its state in etcd
// (`muster up --etcd`), of which one leads, and the members of that etcd.
//
//   DIR/coordinators.json             where each of them listens
//   DIR/coordinators/coordinator-N/   the cluster directory of a coordinator
//   DIR/etcd/                         cert.pem and key.pem, which all members and coordinators show
//   DIR/etcd/etcd-N/, etcd-N.log      a member's data, and its log
//
// The file is written before anything of it is started, and its numbers never change. Plain values,
// free functions; any thread; they block for small files.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/base/cluster_paths.h"
#include "common/base/result.h"
#include "common/rpc/endpoint.h"

namespace muster {

inline constexpr char kLocalEtcd[] = "local";

struct LocalCoordinators {
  std::string dir;                        // the cluster's; absolute
  std::string etcd;                       // kLocalEtcd, or the URLs of one that is not ours
  std::vector<std::string> coordinators;  // --tls-listen of each: 127.0.0.1:PORT
  std::vector<std::string> etcd_clients;  // where each member listens; none of an etcd not ours
  std::vector<std::string> etcd_peers;

  // "coordinator-1", "etcd-1" of the first ones.
  static std::string CoordinatorName(std::size_t index);
  static std::string MemberName(std::size_t index);
  ClusterPaths PathsOf(std::size_t coordinator) const;
  std::string EtcdDir() const { return dir + "/etcd"; }
  std::string Addresses() const;  // of all coordinators, as --coordinator takes them
};

// kNotFound: the cluster has one coordinator, with a database.
Result<LocalCoordinators> ReadLocalCoordinators(const std::string& dir);
Status WriteLocalCoordinators(const LocalCoordinators& local);

// The endpoint file of the one that leads. kUnavailable: none does.
Result<Endpoint> FindLocalLeader(const LocalCoordinators& local);

}  // namespace muster
