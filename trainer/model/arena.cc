#include "trainer/model/arena.h"

#include <ATen/ATen.h>

#include "common/base/round_up.h"

namespace muster {
namespace {

// Lines of every cache and the widest loads of every device divide it.
constexpr std::int64_t kAlignment = 256;

}  // namespace

at::Tensor BumpAllocator::Cut(at::IntArrayRef shape, at::ScalarType type) {
  const std::int64_t size =
      c10::multiply_integers(shape) * static_cast<std::int64_t>(at::elementSize(type));
  const std::int64_t begin = used_;
  used_ += RoundUp(size, kAlignment);
  if (!bytes_.defined()) return {};
  return bytes_.narrow(0, begin, size).view(type).view(shape);
}

void Arena::Grow(std::int64_t bytes) {
  if (bytes <= this->bytes()) return;
  memory_bytes_.reset();  // first, so that old and new memory are not held at once
  const auto size = static_cast<std::size_t>(bytes);
  memory_bytes_ = memory_ == Memory::kHost ? ops_.AllocateHost(size) : ops_.Allocate(size);
}

}  // namespace muster
