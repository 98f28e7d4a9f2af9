// What the snapshot tests share: a small model cut over any number of ranks, whose elements say by
// their values which ones they are. Header of tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/comm/group/testing/in_process_communicator.h"
#include "trainer/core/flat_layout.h"
#include "trainer/state/snapshot/segment.h"

namespace muster::testing {

inline FlatLayout SmallLayout(int shard_count) {
  return FlatLayout({{"embed", {{"tokens", {50, 7}}}},
                     {"block.0", {{"norm", {7}}, {"query", {7, 7}}, {"key", {3, 7}, true}}},
                     {"head", {{"final", {7}}, {"out", {50, 7}}}}},
                    shard_count);
}

inline SegmentSpec SmallSpec(int shard, int shard_count, std::string name = "segment") {
  const FlatLayout layout = SmallLayout(shard_count);
  SegmentSpec spec{.name = std::move(name),
                   .shard_index = shard,
                   .shard_count = shard_count,
                   .layout = static_cast<std::uint64_t>(100 + shard_count)};
  for (int u = 0; u < static_cast<int>(layout.units().size()); ++u) {
    for (const char* kind : {"weight", "exp_avg"}) {
      spec.arrays.push_back({.name = layout.units()[u].name + "/" + kind,
                             .count = layout.units()[u].shard_count,
                             .intervals = layout.ShardIntervals(u, shard)});
    }
  }
  return spec;
}

// The value of an element of a state.
inline float ValueOf(const ShardArray& array, const TensorInterval& interval, std::int64_t element,
                     Step step) {
  const std::size_t salt = std::hash<std::string>()(interval.tensor) % 997 + array.kind().size();
  return static_cast<float>(salt) + 0.125F * static_cast<float>(element) +
         1000.0F * static_cast<float>(step);
}

inline void ForElements(
    const std::vector<ShardArray>& arrays,
    const std::function<void(const ShardArray&, const TensorInterval&, std::int64_t, float*)>& f) {
  for (const ShardArray& array : arrays) {
    for (const TensorInterval& interval : array.intervals) {
      for (std::int64_t i = 0; i < interval.count; ++i) {
        f(array, interval, interval.begin + i,
          static_cast<float*>(array.data) + interval.array_offset + i);
      }
    }
  }
}

inline void FillWithStep(const std::vector<ShardArray>& arrays, Step step) {
  ForElements(arrays,
              [step](const ShardArray& array, const TensorInterval& interval, std::int64_t element,
                     float* value) { *value = ValueOf(array, interval, element, step); });
}

// Elements that are not those of the step.
inline int CountWrong(const std::vector<ShardArray>& arrays, Step step) {
  int wrong = 0;
  ForElements(arrays, [&](const ShardArray& array, const TensorInterval& interval,
                          std::int64_t element, const float* value) {
    if (*value != ValueOf(array, interval, element, step)) ++wrong;
  });
  return wrong;
}

// Memory for the arrays of a spec, zeroed.
class Arrays {
 public:
  explicit Arrays(const SegmentSpec& spec) : arrays_(spec.arrays) {
    for (ShardArray& array : arrays_) {
      memory_.emplace_back(static_cast<std::size_t>(array.count));
      array.data = memory_.back().data();
    }
  }
  const std::vector<ShardArray>& arrays() const { return arrays_; }

 private:
  std::vector<ShardArray> arrays_;
  std::vector<std::vector<float>> memory_;
};

inline TrainCursor CursorOf(Step step) {
  return {.step = step, .samples = 8 * step, .tokens = 64 * step, .seed = 7};
}

inline std::unique_ptr<Segment> MakeSegment(int shard, int shard_count, Generation lineage = 1,
                                            const std::string& name = "segment") {
  auto segment = Segment::Create(SmallSpec(shard, shard_count, name), lineage, false);
  EXPECT_TRUE(segment.ok()) << segment.status().ToString();
  return *std::move(segment);
}

// Writes and seals a step as an optimizer does: into the slot that is not the newest.
inline void TrainTo(Segment& segment, Step step) {
  const int slot = segment.NewestStep() < 0 ? 0 : segment.FreeSlot(segment.NewestSlot());
  segment.Unseal(slot);
  FillWithStep(segment.Arrays(slot), step);
  segment.Seal(slot, CursorOf(step));
}

// Runs `body` as each rank of a gang that has formed, in a thread of its own.
inline void AsGang(int world_size, const std::function<void(Communicator&)>& body) {
  InProcessGroup group(world_size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      const std::unique_ptr<Communicator> communicator = group.Join(rank);
      const Status formed =
          communicator->Form({.generation = 1, .rank = rank, .world_size = world_size},
                             Deadline::After(std::chrono::seconds(30)));
      ASSERT_TRUE(formed.ok()) << formed.ToString();
      body(*communicator);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace muster::testing
