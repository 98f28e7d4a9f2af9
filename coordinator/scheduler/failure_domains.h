// The effect of failure domains of nodes (rack, switch, host) on the nodes of one gang.
//
// Nodes of one domain are expected to fail together, so the copy of a node's snapshots should lie
// on a node of another one, and a spare should be in one that the gang does not depend on.
//
// Pure; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace muster {

// The order of the buddy ring, as indices into `domains`, which are by node rank: each node's
// snapshots are kept on the next one, the last one's on the first. As few neighbours as possible
// share a domain: none if no domain has more than half of the nodes. It is the order of the node
// ranks if that is as good. A function of its input, so every caller gets the same.
std::vector<int> BuddyRing(const std::vector<std::string>& domains);

// The domains of a gang that is being composed.
class DomainCount {
 public:
  void Add(const std::string& domain) { ++nodes_[domain]; }
  // The number of nodes in that domain.
  int Of(const std::string& domain) const;
  // How many neighbours in the ring of a gang of `size` would share this domain, with one more node
  // of it: 0 up to half of the gang.
  int AlikeWith(const std::string& domain, int size) const;

 private:
  std::map<std::string, int> nodes_;
};

}  // namespace muster
