// LocalClusterNetwork: the network of a cluster whose nodes have network namespaces of their own.
//
//   hub namespace: coordinator, bridge muster0 10.77.0.1/24 ── ports node-1, node-2, ...
//   node namespace: worker, guardians, ranks, eth0 10.77.0.(1 + N)/24 ── veth pair to its port
//
// The host's network is not involved, so a port that is down cuts a node off as a pulled cable
// does: from the coordinator and from the other nodes at the same time. Clients reach the
// coordinator by a Unix socket. The names derive from the cluster's directory, so that Remove finds
// all of them, also those of an interrupted `muster up`. The program `ip` makes each change in one
// blocking call of some milliseconds.
//
// Owned by LocalCluster; one thread, which holds the cluster's lock.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace muster {

class LocalClusterNetwork {
 public:
  explicit LocalClusterNetwork(std::string cluster_dir);

  // Whether this user on this machine can have one; the message says what is missing.
  static Status CheckPossible();

  // Whether a namespace of this cluster is there.
  bool Exists() const;

  // Creates the hub and a namespace for each of the nodes 1 to `nodes`. Those of `in_use` have
  // processes and are kept, and the hub with them; all others are created again, because an earlier
  // `muster up` may have been interrupted.
  Status Make(int nodes, const std::set<std::string>& in_use);

  // Every namespace of this cluster, with all that is inside. OK when there is none.
  Status Remove();

  // A node's link: whether there is one, and its state. kNotFound: no such node here.
  Status CheckLink(const std::string& node) const;
  Status SetLink(const std::string& node, bool up);

  static std::string NodeName(int index);     // "node-1"
  static std::string NodeAddress(int index);  // "10.77.0.2"
  static std::string CoordinatorAddress();    // "10.77.0.1:7700"

 private:
  std::string Namespace(const std::string& place) const;
  std::vector<std::string> Names() const;
  Status MakeHub();
  Status MakeNode(int index);
  Status Delete(const std::string& name);

  const std::string cluster_dir_;
};

}  // namespace muster
