#include "trainer/state/checkpoint/shard_image.h"

#include <sys/mman.h>

#include <new>
#include <utility>

#include "trainer/core/stream_copy.h"

namespace muster {
namespace {

// Since Linux 5.14; older headers lack the name and older kernels refuse the advice.
constexpr int kPopulateWrite = 23;
constexpr std::size_t kPageBytes = 4096;

void TouchPages(std::byte* memory, std::size_t bytes) {
  if (::madvise(memory, bytes, kPopulateWrite) == 0) return;
  for (std::size_t at = 0; at < bytes; at += kPageBytes) {
    *reinterpret_cast<volatile std::byte*>(memory + at) = std::byte{0};
  }
}

}  // namespace

void Unmap::operator()(std::byte* memory) const { ::munmap(memory, bytes); }

void ShardImage::Reserve(const std::vector<ShardArray>& arrays) {
  ShardPlaces places = PlaceArrays(arrays);
  if (places == places_ && (memory_ != nullptr || places.end == 0)) return;
  memory_ = {nullptr, Unmap{}};
  places_ = {};
  const std::size_t bytes = ShardFrame::Make(0, places.end).data_bytes;
  if (bytes > 0) {
    void* mapped =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    memory_ = {static_cast<std::byte*>(mapped), Unmap{bytes}};
    (void)::madvise(mapped, bytes, MADV_HUGEPAGE);
    TouchPages(memory_.get(), bytes);
  }
  places_ = std::move(places);
}

void ShardImage::Refer(ShardHeader header, SealedShard shard) {
  for (ShardArray& array : header.arrays) array.data = nullptr;
  header_ = std::move(header);
  sealed_ = std::move(shard);
}

void ShardImage::Capture(ShardHeader header, const ArrayMemory& memory) {
  LetGo();
  Reserve(header.arrays);
  for (std::size_t i = 0; i < header.arrays.size(); ++i) {
    ShardArray& array = header.arrays[i];
    std::byte* place = memory_.get() + places_.offsets[i];
    if (memory.read) {
      memory.read(place, array.data, array.bytes());
    } else {
      StreamCopy(place, array.data, array.bytes());
    }
    array.data = nullptr;  // the engine's memory is no business of the writer
  }
  header_ = std::move(header);
}

}  // namespace muster
