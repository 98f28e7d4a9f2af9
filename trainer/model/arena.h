// Arena: one piece of a device's memory that is cut into tensors anew for every batch shape.
//
// A layout is a function that asks a BumpAllocator for tensors, one after the other. It runs twice:
// first to learn how much memory it takes, then to get its tensors. Memory grows to the largest
// layout and stays; contents survive no Fit. One thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "trainer/ops/device_ops.h"

namespace muster {

class BumpAllocator {
 public:
  // Without memory it measures, and its tensors are undefined.
  BumpAllocator() = default;
  // bytes [n] uint8.
  explicit BumpAllocator(at::Tensor bytes) : bytes_(std::move(bytes)) {}

  at::Tensor Cut(at::IntArrayRef shape, at::ScalarType type);

  // Tensors that are never alive at the same time: what each function cuts begins at the same
  // place, and what follows comes after the longest.
  template <typename... Layouts>
  void Overlap(Layouts... layouts) {
    const std::int64_t begin = used_;
    std::int64_t end = begin;
    ((used_ = begin, layouts(), end = std::max(end, used_)), ...);
    used_ = end;
  }

  std::int64_t used() const { return used_; }

 private:
  at::Tensor bytes_;
  std::int64_t used_ = 0;
};

class Arena {
 public:
  enum class Memory { kDevice, kHost };  // kHost: DeviceOps::AllocateHost

  explicit Arena(DeviceOps& ops, Memory memory = Memory::kDevice) : ops_(ops), memory_(memory) {}

  template <typename Layout>
  void Fit(Layout layout) {
    BumpAllocator measure;
    layout(measure);
    Grow(measure.used());
    BumpAllocator allocator(memory_bytes_);
    layout(allocator);
  }

  std::int64_t bytes() const { return memory_bytes_.defined() ? memory_bytes_.numel() : 0; }

 private:
  void Grow(std::int64_t bytes);

  DeviceOps& ops_;
  const Memory memory_;
  at::Tensor memory_bytes_;
};

}  // namespace muster
