// What the failure domains of nodes (rack, switch, host) mean for the nodes of one gang.
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
// snapshots are kept on the one behind it, the last one's on the first. As few neighbours as
// possible are of one domain: none where no domain has more than half of the nodes. The order of
// the node ranks where that does as well. A function of its input, so every caller has the same.
std::vector<int> BuddyRing(const std::vector<std::string>& domains);

// The domains of a gang that is being put together.
class DomainCount {
 public:
  void Add(const std::string& domain) { ++nodes_[domain]; }
  // Nodes of that domain.
  int Of(const std::string& domain) const;
  // How many neighbours in the ring of a gang of `size` would be of this one domain, with one more
  // node of it: 0 up to half of the gang.
  int AlikeWith(const std::string& domain, int size) const;

 private:
  std::map<std::string, int> nodes_;
};

}  // namespace muster
