#include "trainer/fsdp/frozen_store.h"

#include <ATen/ATen.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/base/check.h"
#include "common/base/round_up.h"
#include "trainer/comm/transport/shared/shared_link.h"

namespace muster {
namespace {

constexpr std::size_t kMarkAlignment = 64;

// What has a content of its own beside the shards' numbers.
constexpr std::uint64_t kShared = ~std::uint64_t{0};

}  // namespace

struct FrozenStore::Mark {
  std::uint64_t content;
  float offsets[];

  std::atomic_ref<std::uint64_t> word() { return std::atomic_ref<std::uint64_t>(content); }
};

std::size_t FrozenStore::mark_bytes() const {
  if (options_.retained == nullptr) return 0;
  return kMarkAlignment + sizeof(Mark) +
         static_cast<std::size_t>(options_.matrices) * sizeof(float);
}

std::uint64_t FrozenStore::ContentOf(std::uint64_t part) const {
  const std::uint64_t words[] = {options_.content, part};
  // 0 is that of memory which is not complete.
  return std::max<std::uint64_t>(XXH3_64bits(words, sizeof words), 1);
}

int FrozenStore::shared_file() const {
  return options_.retained != nullptr ? options_.retained->file(ContentOf(kShared)) : -1;
}

void FrozenStore::UseShared(const SharedRegion& region, std::size_t array_bytes) {
  if (options_.retained == nullptr) return;
  content_ = ContentOf(kShared);
  if (region.file() < 0) return;
  mark_ = reinterpret_cast<Mark*>(static_cast<std::byte*>(region.data()) +
                                  RoundUp(array_bytes, kMarkAlignment));
  file_ = region.file();
  shared_ = true;
}

Result<at::Tensor> FrozenStore::Allocate(std::size_t bytes) {
  const bool host = ops_.is_host() || options_.in_host_memory;
  if (options_.retained == nullptr) return host ? ops_.AllocateHost(bytes) : ops_.Allocate(bytes);
  const std::uint64_t words[] = {static_cast<std::uint64_t>(options_.rank), bytes};
  content_ = ContentOf(XXH3_64bits(words, sizeof words));
  if (host) return MapFile(bytes);
  // Memory of another content would lie beside the new one.
  options_.retained->KeepOnlyDevice(content_);
  const RetainedWeights::DeviceMemory* const kept = options_.retained->device(content_);
  device_ = kept != nullptr ? kept->bytes : ops_.Allocate(bytes);
  return device_;
}

Result<at::Tensor> FrozenStore::MapFile(std::size_t bytes) {
  const std::size_t total = bytes + mark_bytes();
  const int kept = options_.retained->file(content_);
  MUSTER_ASSIGN_OR_RETURN(own_file_,
                          kept >= 0 ? KeptMemoryFile(kept, total) : MakeMemoryFile(total));
  MUSTER_ASSIGN_OR_RETURN(std::shared_ptr<std::byte> memory, MapDescriptor(own_file_.get(), total));
  mark_ = reinterpret_cast<Mark*>(memory.get() + RoundUp(bytes, kMarkAlignment));
  file_ = own_file_.get();
  pinned_ = ops_.PinHost(memory.get(), bytes);
  return at::from_blob(
      memory.get(), {static_cast<std::int64_t>(bytes)}, [memory](void*) {}, at::kByte);
}

bool FrozenStore::complete() const {
  if (device_.defined()) return options_.retained->device(content_) != nullptr;
  return mark_ != nullptr && mark_->word().load(std::memory_order_acquire) == content_;
}

std::vector<float> FrozenStore::offsets() const {
  MUSTER_CHECK(complete(), "what is not there has no offsets");
  if (device_.defined()) return options_.retained->device(content_)->offsets;
  return {mark_->offsets, mark_->offsets + options_.matrices};
}

Status FrozenStore::Complete(const std::vector<float>& offsets) {
  if (device_.defined()) {
    options_.retained->Keep(content_, {device_, offsets});
    return OkStatus();
  }
  if (mark_ == nullptr) return OkStatus();
  const bool first = !shared_ || options_.rank == 0;
  if (first) {
    std::copy(offsets.begin(), offsets.end(), mark_->offsets);
    mark_->word().store(content_, std::memory_order_release);
  }
  return options_.retained->Keep(content_, file_, first);
}

}  // namespace muster
