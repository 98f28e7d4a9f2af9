// What the checkpoint tests share: a rank's small state. Header of tests only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/core/flat_layout.h"
#include "trainer/state/checkpoint/checkpoint.h"
#include "trainer/state/checkpoint/element_convert.h"
#include "trainer/state/checkpoint/shard_image.h"

namespace muster::testing {

// Two arrays of different types and uneven length, rank `rank`'s part of three tensors; values
// follow from `seed`. The last ten weights are padding.
struct State {
  std::vector<float> weight = std::vector<float>(1000);
  std::vector<std::uint8_t> flags = std::vector<std::uint8_t>(77);
  int rank = 0;

  explicit State(int seed, int of_rank = 0) : rank(of_rank) {
    for (std::size_t i = 0; i < 990; ++i) {
      weight[i] = static_cast<float>(seed) + 0.25F * static_cast<float>(i);
    }
    for (std::size_t i = 0; i < flags.size(); ++i) {
      flags[i] = static_cast<std::uint8_t>(i * static_cast<std::size_t>(seed + 3));
    }
  }

  // As an engine allocates it.
  static State Zero(int rank) {
    State state(0, rank);
    std::fill(state.weight.begin(), state.weight.end(), 0.0F);
    std::fill(state.flags.begin(), state.flags.end(), std::uint8_t{0});
    return state;
  }

  // Points into this object.
  std::vector<ShardArray> arrays() const {
    std::vector<ShardArray> arrays(2);
    arrays[0] = {
        "block/weight", ElementType::kFloat32, 1000, const_cast<float*>(weight.data()), {}};
    arrays[0].intervals = {{"q_proj", {20, 100}, 500 * rank, 500, 0},
                           {"k_proj", {40, 50}, 490 * rank, 490, 500}};
    arrays[1] = {
        "block/flags", ElementType::kUint8, 77, const_cast<std::uint8_t*>(flags.data()), {}};
    arrays[1].intervals = {{"mask", {400}, 77 * rank, 77, 0}};
    return arrays;
  }

  friend bool operator==(const State&, const State&) = default;
};

// Arrays as they look when they lie on a device: their addresses mean nothing to the host.
class FakeDevice {
 public:
  static std::vector<ShardArray> Hide(std::vector<ShardArray> arrays) {
    for (ShardArray& array : arrays) array.data = Shifted(array.data, kDistance);
    return arrays;
  }
  static ArrayMemory memory() {
    return {[](void* host, const void* array, std::size_t bytes) {
              std::memcpy(host, Shifted(array, -kDistance), bytes);
            },
            [](void* array, const void* host, std::size_t bytes) {
              std::memcpy(Shifted(array, -kDistance), host, bytes);
            }};
  }

 private:
  static constexpr std::intptr_t kDistance = std::intptr_t{1} << 60;  // beyond all that is mapped
  static void* Shifted(const void* address, std::intptr_t by) {
    return reinterpret_cast<void*>(reinterpret_cast<std::intptr_t>(address) + by);
  }
};

inline ShardImage ImageOf(ShardHeader header) {
  ShardImage image;
  image.Capture(std::move(header));
  return image;
}

// One rank's weights and moments of a small model, laid out as the engine lays them out. Values
// depend on tensor, kind and element alone, so that whatever rank holds an element knows it.
class RankState {
 public:
  RankState(const FlatLayout& layout, int rank, ElementType moments = ElementType::kFloat32) {
    for (int u = 0; u < static_cast<int>(layout.units().size()); ++u) {
      for (const std::string kind : {"weight", "exp_avg", "exp_avg_sq"}) {
        const ElementType type = kind == "weight" ? ElementType::kFloat32 : moments;
        const std::int64_t count = layout.units()[u].shard_count;
        memory_.emplace_back(static_cast<std::size_t>(count) * ElementSize(type));
        arrays_.push_back({layout.units()[u].name + "/" + kind, type, count, memory_.back().data(),
                           layout.ShardIntervals(u, rank)});
      }
    }
  }

  const std::vector<ShardArray>& arrays() const { return arrays_; }

  static double ValueOf(const TensorInterval& interval, std::string_view kind, std::int64_t i) {
    const double tensor = static_cast<double>(std::hash<std::string>{}(interval.tensor) % 97);
    return tensor + static_cast<double>(kind.size()) * 128 +
           0.5 * static_cast<double>((interval.begin + i) % 1000);
  }

  void Fill() {
    for (const ShardArray& array : arrays_) {
      const std::size_t size = ElementSize(array.type);
      for (const TensorInterval& interval : array.intervals) {
        auto* at = static_cast<char*>(array.data) + interval.array_offset * size;
        for (std::int64_t i = 0; i < interval.count; ++i, at += size) {
          const double value = ValueOf(interval, array.kind(), i);
          ConvertElements(&value, ElementType::kFloat64, at, array.type, 1);
        }
      }
    }
  }
  // Whether every element has its value, rounded to the array's type, and padding is zero.
  bool IsFilled() const {
    RankState expected = *this;
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      std::fill(expected.memory_[i].begin(), expected.memory_[i].end(), '\0');
      expected.arrays_[i].data = expected.memory_[i].data();
    }
    expected.Fill();
    return expected.memory_ == memory_;
  }

 private:
  std::vector<std::vector<char>> memory_;
  std::vector<ShardArray> arrays_;
};

}  // namespace muster::testing
