#include "trainer/state/snapshot/cut.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace muster {
namespace {

// A claim as it travels.
constexpr std::size_t kWords = 5;

void Append(const ShardClaim& claim, std::vector<std::int64_t>* words) {
  const StateId& state = claim.state;
  words->insert(words->end(), {state.lineage, state.step, state.shard_count,
                               static_cast<std::int64_t>(state.layout), claim.shard_index});
}

ShardClaim ClaimAt(const std::int64_t* words) {
  return {.state = {.lineage = words[0],
                    .step = words[1],
                    .shard_count = static_cast<int>(words[2]),
                    .layout = static_cast<std::uint64_t>(words[3])},
          .shard_index = static_cast<int>(words[4])};
}

}  // namespace

std::vector<ShardClaim> ClaimsOf(const Segment& segment) {
  const SegmentHistory history = segment.history();
  std::vector<ShardClaim> claims;
  for (int slot = 0; slot < kSegmentSlots; ++slot) {
    for (const Step step : segment.Labels(slot)) {
      for (const Generation lineage : {history.lineage, history.parent}) {
        if (!history.Covers(lineage, step)) continue;
        claims.push_back({.state = {.lineage = lineage,
                                    .step = step,
                                    .shard_count = segment.spec().shard_count,
                                    .layout = segment.spec().layout},
                          .shard_index = segment.spec().shard_index});
      }
    }
  }
  return claims;
}

Result<std::optional<Cut>> AgreeOnCut(Communicator& communicator,
                                      const std::vector<const Segment*>& segments) {
  std::vector<std::int64_t> words;
  for (const Segment* segment : segments) {
    for (const ShardClaim& claim : ClaimsOf(*segment)) Append(claim, &words);
  }
  auto longest = static_cast<std::int64_t>(words.size());
  MUSTER_RETURN_IF_ERROR(
      communicator.AllReduce(&longest, 1, ElementType::kInt64, ReduceOp::kMax)->Wait());
  if (longest == 0) return std::optional<Cut>();
  // Behind the claims zeros, which claim none: a state has at least one shard.
  words.resize(static_cast<std::size_t>(longest));
  std::vector<std::int64_t> all(words.size() * static_cast<std::size_t>(communicator.size()));
  MUSTER_RETURN_IF_ERROR(
      communicator.AllGather(words.data(), all.data(), words.size(), ElementType::kInt64)->Wait());
  std::vector<std::vector<ShardClaim>> claims(static_cast<std::size_t>(communicator.size()));
  for (std::size_t at = 0; at < all.size(); at += kWords) {
    const ShardClaim claim = ClaimAt(&all[at]);
    if (claim.state.shard_count > 0) claims[at / words.size()].push_back(claim);
  }
  return ChooseCut(claims);
}

HeldShard FindShard(const std::vector<const Segment*>& segments, const StateId& state,
                    int shard_index) {
  for (const Segment* segment : segments) {
    if (segment->spec().shard_index != shard_index) continue;
    if (const std::optional<int> slot = segment->Find(state)) return {segment, *slot};
  }
  return {};
}

}  // namespace muster
