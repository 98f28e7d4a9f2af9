// Of cut.h: the choice alone, which needs neither segments nor collectives.
#include <map>
#include <tuple>

#include "trainer/state/snapshot/cut.h"

namespace muster {
namespace {

// Newest first.
struct Newer {
  bool operator()(const StateId& a, const StateId& b) const {
    return std::tie(a.lineage, a.step, a.shard_count, a.layout) >
           std::tie(b.lineage, b.step, b.shard_count, b.layout);
  }
};

}  // namespace

std::optional<Cut> ChooseCut(const std::vector<std::vector<ShardClaim>>& claims) {
  std::map<StateId, std::map<int, int>, Newer> states;  // provider by shard
  for (int rank = 0; rank < static_cast<int>(claims.size()); ++rank) {
    for (const ShardClaim& claim : claims[rank]) {
      states[claim.state].try_emplace(claim.shard_index, rank);  // the lowest rank stays
    }
  }
  for (const auto& [state, providers] : states) {
    if (static_cast<int>(providers.size()) != state.shard_count) continue;
    Cut cut{.state = state};
    for (const auto& [shard, rank] : providers) cut.providers.push_back(rank);
    return cut;
  }
  return std::nullopt;
}

}  // namespace muster
