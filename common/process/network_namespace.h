// The network namespaces of a local cluster (`muster up --netns`): how they are called, entering
// one, and the proof that a process sits in one of them.
//
// A cluster has one namespace for each node and the hub, which joins them. Their names derive from
// the cluster's directory, so that a program that knows the directory finds them again, whatever
// became of the process that made them. `cli/local_cluster` makes and removes them. Free functions;
// any thread, but a scope belongs to the thread that made it.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

// Where the coordinator of a cluster in namespaces runs.
inline constexpr char kHubNamespace[] = "hub";

// "muster-", 16 hexadecimal digits of the directory, "-": what all of a cluster's names begin with.
std::string ClusterNamespacePrefix(const std::string& cluster_dir);

// The name for the hub or for a node. `cluster_dir` is absolute and normal, as all programs get it.
std::string ClusterNamespace(const std::string& cluster_dir, const std::string& place);

// The file that pins a namespace, as `ip netns` makes it.
std::string NamespacePath(const std::string& name);

// Moves the calling thread into a namespace until the scope ends; processes started meanwhile stay
// there. Aborts when the thread cannot return: nothing it did afterwards would be where it belongs.
class NamespaceScope {
 public:
  static Result<NamespaceScope> Enter(const std::string& name);
  ~NamespaceScope();
  NamespaceScope(NamespaceScope&&) = default;
  NamespaceScope& operator=(NamespaceScope&&) = delete;

 private:
  explicit NamespaceScope(UniqueFd home) : home_(std::move(home)) {}
  UniqueFd home_;
};

// OK when this process sits in the hub of the cluster in `cluster_dir` and no route leads out of it
// by a gateway: then what is sent in clear reaches the cluster's own namespaces alone.
// Only root can make such a namespace, or a way out of it.
Status CheckPrivateNetwork(const std::string& cluster_dir);

// Whether /proc/net/route or /proc/net/ipv6_route has a route by a gateway. What cannot be read as
// a route counts as one.
bool HasGatewayRoute(std::string_view routes, std::string_view ipv6_routes);

}  // namespace muster
