// A snapshot segment as the simulation sees it: which labels its two slots have, whose course of
// training they belong to, and, in place of arrays, what state they would hold.
//
// It follows trainer/state/snapshot/segment.h; the choice of the cut is that library's own.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "trainer/state/snapshot/cut.h"

namespace muster::sim {

// What weights and optimizer would be: equal contents are equal states. Made of every step's own
// computation, so that the same step computed twice by different gangs gives different ones.
using Content = std::uint64_t;

struct SimSlot {
  Step step = -1;  // -1: no label, or being written
  Content content = 0;
};

struct SimSegment {
  std::string name;
  int shard_index = 0;
  int shard_count = 1;
  Generation lineage = 0;
  Generation parent = 0;
  Step parent_step = -1;
  std::array<SimSlot, 2> slots;

  // As ClaimsOf: a label belongs to its lineage, and up to the parent's step to the parent's too.
  std::vector<ShardClaim> Claims() const {
    std::vector<ShardClaim> claims;
    for (const SimSlot& slot : slots) {
      if (slot.step < 0) continue;
      claims.push_back({{lineage, slot.step, shard_count, 0}, shard_index});
      if (parent > 0 && slot.step <= parent_step) {
        claims.push_back({{parent, slot.step, shard_count, 0}, shard_index});
      }
    }
    return claims;
  }
  const SimSlot* Find(const StateId& state) const {
    for (const SimSlot& slot : slots) {
      const bool mine = state.lineage == lineage ||
                        (parent > 0 && state.lineage == parent && slot.step <= parent_step);
      if (mine && slot.step == state.step && state.shard_count == shard_count) return &slot;
    }
    return nullptr;
  }
  // The slot with the newest label.
  int Newest() const { return slots[1].step > slots[0].step ? 1 : 0; }
};

using SegmentPtr = std::shared_ptr<SimSegment>;

}  // namespace muster::sim
