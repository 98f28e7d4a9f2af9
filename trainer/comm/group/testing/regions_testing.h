// Checks of shared regions: in place means that the result is right and that no byte was copied.
// Header of tests only.
#pragma once

#include <string>
#include <vector>

#include "trainer/comm/group/testing/collectives_testing.h"

namespace muster::testing {

// The places of all ranks in one array, twice, since the second time what was there is overwritten.
inline std::string CheckCommonRegion(Communicator& c, std::size_t count, bool in_place) {
  const auto ranks = static_cast<std::size_t>(c.size());
  auto region = c.Share(RegionKind::kCommon, ranks * count * sizeof(std::int64_t), -1);
  if (!region.ok()) return region.status().ToString();
  auto* full = static_cast<std::int64_t*>((*region)->data());
  std::vector<std::int64_t> own(count);
  std::int64_t* place = full + static_cast<std::size_t>(c.rank()) * count;
  std::int64_t* shard = in_place ? place : own.data();
  for (std::int64_t round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < count; ++i) {
      if (in_place && round == 0 && place[i] != 0) return "not zeroed";
      shard[i] = 100 * round + c.rank();
    }
    const auto before = c.counters().bytes;
    if (Status s = c.AllGather(shard, full, count, ElementType::kInt64)->Wait(); !s.ok()) {
      return s.ToString();
    }
    if (c.counters().bytes != before) return "the all-gather copied";
    for (std::size_t i = 0; i < ranks * count; ++i) {
      if (full[i] != 100 * round + static_cast<std::int64_t>(i / count)) {
        return "element " + std::to_string(i) + " is " + std::to_string(full[i]);
      }
    }
    if (Status s = c.Barrier(); !s.ok()) return s.ToString();
  }
  return "";
}

// Two slots in turn, each refilled as soon as its operation was waited for, while the other is
// under way. `everybody`: else the ranks above 0 use memory of their own, and all copy.
inline std::string CheckRegionPerRank(Communicator& c, std::size_t count, bool everybody) {
  const auto ranks = static_cast<std::size_t>(c.size());
  const std::size_t slot = ranks * count;
  auto region = c.Share(RegionKind::kPerRank, 2 * slot * sizeof(float), -1);
  if (!region.ok()) return region.status().ToString();
  std::vector<float> private_slots(2 * slot);
  float* slots =
      everybody || c.rank() == 0 ? static_cast<float*>((*region)->data()) : private_slots.data();
  std::vector<std::vector<float>> shards(2, std::vector<float>(count));
  std::unique_ptr<Work> works[2];
  const auto check = [&](int round) -> std::string {
    if (Status s = works[round % 2]->Wait(); !s.ok()) return s.ToString();
    for (std::size_t i = 0; i < count; ++i) {
      // Ranks 0, 1, ... gave round + rank: a multiple of ranks and the sum of their numbers.
      const float want =
          static_cast<float>(ranks * static_cast<std::size_t>(round) + ranks * (ranks - 1) / 2);
      const float got = shards[static_cast<std::size_t>(round % 2)][i];
      if (got != want) return "round " + std::to_string(round) + ": " + std::to_string(got);
    }
    return "";
  };
  const auto before = c.counters().bytes;
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    if (round >= 2) {
      if (auto e = check(round - 2); !e.empty()) return e;
    }
    float* full = slots + static_cast<std::size_t>(round % 2) * slot;
    std::fill(full, full + slot, static_cast<float>(round + c.rank()));
    works[round % 2] = c.ReduceScatter({.full = full,
                                        .shard = shards[static_cast<std::size_t>(round % 2)].data(),
                                        .count = count});
  }
  for (int round = kRounds - 2; round < kRounds; ++round) {
    if (auto e = check(round); !e.empty()) return e;
  }
  const auto read = c.counters().bytes - before;
  if (read != kRounds * count * sizeof(float) * (ranks - 1)) return std::to_string(read) + " bytes";
  return c.Barrier().ToString() == "OK" ? "" : "barrier";
}

inline std::string CheckRegions(Communicator& c) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{5001}}) {
    if (auto e = CheckCommonRegion(c, count, true); !e.empty()) return "in place: " + e;
    if (auto e = CheckCommonRegion(c, count, false); !e.empty()) return "from elsewhere: " + e;
    if (auto e = CheckRegionPerRank(c, count, true); !e.empty()) return "per rank: " + e;
    if (auto e = CheckRegionPerRank(c, count, false); !e.empty()) return "one of all: " + e;
  }
  return CheckEverything(c, 901);
}

}  // namespace muster::testing
