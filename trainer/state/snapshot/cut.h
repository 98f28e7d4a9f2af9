// The cut: the newest state that the ranks of a gang hold whole among them.
//
// Every rank says which labels it can read, all compute the same choice from the union. So no
// process outside the gang needs to know what lies where (ADR 10).
//
// ChooseCut is pure. AgreeOnCut is collective, on the trainer's thread.
#pragma once

#include <optional>
#include <vector>

#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/state/snapshot/segment.h"

namespace muster {

// A shard of a state that a rank can read.
struct ShardClaim {
  StateId state;
  int shard_index = 0;

  friend bool operator==(const ShardClaim&, const ShardClaim&) = default;
};

struct Cut {
  StateId state;
  std::vector<int> providers;  // by shard: the lowest rank that can read it

  friend bool operator==(const Cut&, const Cut&) = default;
};

// What this segment offers: each label, for each lineage that it belongs to.
std::vector<ShardClaim> ClaimsOf(const Segment& segment);

// The state with every shard and the highest lineage, and among these the highest step.
// `claims` by rank. Nothing when no state is whole.
std::optional<Cut> ChooseCut(const std::vector<std::vector<ShardClaim>>& claims);

// Collective. `segments` are those that this rank can read. Equal on all ranks.
Result<std::optional<Cut>> AgreeOnCut(Communicator& communicator,
                                      const std::vector<const Segment*>& segments);

// Of `segments` the one that holds this shard of the cut, and its slot.
struct HeldShard {
  const Segment* segment = nullptr;  // null: none
  int slot = 0;
};
HeldShard FindShard(const std::vector<const Segment*>& segments, const StateId& state,
                    int shard_index);

}  // namespace muster
