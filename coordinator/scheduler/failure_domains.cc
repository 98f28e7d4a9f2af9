#include "coordinator/scheduler/failure_domains.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <tuple>

namespace muster {
namespace {

int AlikeNeighbours(const std::vector<int>& ring, const std::vector<std::string>& domains) {
  int alike = 0;
  for (std::size_t at = 0; at < ring.size(); ++at) {
    const int next = ring[(at + 1) % ring.size()];
    if (domains[static_cast<std::size_t>(ring[at])] == domains[static_cast<std::size_t>(next)]) {
      ++alike;
    }
  }
  return alike;
}

// Every second seat is taken first, then those between, the largest domain first: only a domain
// with more than half of the nodes has neighbours of its own, as few as possible.
std::vector<int> Alternating(const std::vector<std::string>& domains) {
  std::map<std::string, std::pair<int, int>> sizes;  // nodes, and the first of them
  for (int node = 0; node < static_cast<int>(domains.size()); ++node) {
    auto& [count, first] =
        sizes.try_emplace(domains[static_cast<std::size_t>(node)], 0, node).first->second;
    ++count;
  }
  std::vector<int> by_domain(domains.size());
  std::iota(by_domain.begin(), by_domain.end(), 0);
  std::sort(by_domain.begin(), by_domain.end(), [&](int a, int b) {
    const auto order = [&](int node) {
      const auto& [count, first] = sizes.at(domains[static_cast<std::size_t>(node)]);
      return std::tuple(-count, first, node);
    };
    return order(a) < order(b);
  });
  std::vector<int> ring(domains.size());
  std::size_t next = 0;
  for (const std::size_t first : {std::size_t{0}, std::size_t{1}}) {
    for (std::size_t seat = first; seat < ring.size(); seat += 2) ring[seat] = by_domain[next++];
  }
  return ring;
}

}  // namespace

std::vector<int> BuddyRing(const std::vector<std::string>& domains) {
  std::vector<int> by_rank(domains.size());
  std::iota(by_rank.begin(), by_rank.end(), 0);
  std::vector<int> alternating = Alternating(domains);
  const bool better = AlikeNeighbours(alternating, domains) < AlikeNeighbours(by_rank, domains);
  return better ? alternating : by_rank;
}

int DomainCount::Of(const std::string& domain) const {
  const auto found = nodes_.find(domain);
  return found == nodes_.end() ? 0 : found->second;
}

int DomainCount::AlikeWith(const std::string& domain, int size) const {
  return std::max(0, 2 * (Of(domain) + 1) - size);
}

}  // namespace muster
