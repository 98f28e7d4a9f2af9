#include "trainer/distributed/ring_collectives.h"

#include <algorithm>
#include <cstring>

#include "trainer/distributed/reduce.h"

namespace muster {
namespace {

// A multiple of every element size. Small enough that a segment is still in cache when it is
// added, large enough that its three messages on the wire do not matter.
constexpr std::size_t kSegmentBytes = 256 * 1024;
// Receives that are posted ahead while reducing.
constexpr std::size_t kReceiveWindow = 8;
// Up to here every rank gathers everybody's values and adds them up itself: half the steps.
constexpr std::size_t kSmallBytes = 32 * 1024;

}  // namespace

std::vector<RingCollectives::Segment> RingCollectives::SegmentsOf(const Blocks& blocks,
                                                                  int block) const {
  const std::size_t begin = std::min(blocks.total, blocks.block * static_cast<std::size_t>(block));
  const std::size_t end = std::min(blocks.total, begin + blocks.block);
  std::vector<Segment> segments;
  for (std::size_t at = begin; at < end; at += kSegmentBytes) {
    segments.push_back({at, std::min(kSegmentBytes, end - at)});
  }
  return segments;
}

Status RingCollectives::WaitSends(std::size_t count, Deadline deadline) {
  for (std::size_t i = 0; i < count; ++i) MUSTER_RETURN_IF_ERROR(link_->WaitSend(deadline));
  return OkStatus();
}

// In place: every rank's own block is filled already. A block that arrived is sent on at once.
Status RingCollectives::GatherBlocks(const Blocks& blocks, Deadline deadline) {
  std::vector<Segment> receives;
  for (int step = 0; step < size_ - 1; ++step) {
    const auto segments = SegmentsOf(blocks, Block(-step - 1));
    receives.insert(receives.end(), segments.begin(), segments.end());
  }
  for (const Segment& segment : receives) {
    MUSTER_RETURN_IF_ERROR(link_->PostReceive(blocks.data + segment.offset, segment.bytes));
  }
  std::size_t sends = 0;
  const auto send = [&](const Segment& segment) {
    ++sends;
    return link_->PostSend(blocks.data + segment.offset, segment.bytes);
  };
  for (const Segment& segment : SegmentsOf(blocks, rank_)) MUSTER_RETURN_IF_ERROR(send(segment));
  // What comes last is the right neighbour's own block: it stays here.
  const std::size_t forwarded = receives.size() - SegmentsOf(blocks, Block(1)).size();
  for (std::size_t i = 0; i < receives.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(link_->WaitReceive(deadline));
    if (i < forwarded) MUSTER_RETURN_IF_ERROR(send(receives[i]));
  }
  return WaitSends(sends, deadline);
}

Status RingCollectives::ReduceBlocks(const Blocks& blocks, std::byte* own, ElementType type,
                                     ReduceOp op, Deadline deadline) {
  std::vector<Segment> receives;
  for (int step = 0; step < size_ - 1; ++step) {
    const auto segments = SegmentsOf(blocks, Block(-step - 2));
    receives.insert(receives.end(), segments.begin(), segments.end());
  }
  const std::vector<Segment> mine = SegmentsOf(blocks, rank_);
  const std::size_t first_own = receives.size() - mine.size();
  if (scratch_.size() < kReceiveWindow * kSegmentBytes) {
    scratch_.resize(kReceiveWindow * kSegmentBytes);
  }
  const auto slot = [&](std::size_t i) {
    return scratch_.data() + (i % kReceiveWindow) * kSegmentBytes;
  };
  const auto receive = [&](std::size_t i) {
    return i < receives.size() ? link_->PostReceive(slot(i), receives[i].bytes) : OkStatus();
  };
  for (std::size_t i = 0; i < kReceiveWindow; ++i) MUSTER_RETURN_IF_ERROR(receive(i));
  std::size_t sends = 0;
  for (const Segment& segment : SegmentsOf(blocks, Block(-1))) {
    MUSTER_RETURN_IF_ERROR(link_->PostSend(blocks.data + segment.offset, segment.bytes));
    ++sends;
  }
  for (std::size_t i = 0; i < receives.size(); ++i) {
    const Segment& segment = receives[i];
    MUSTER_RETURN_IF_ERROR(link_->WaitReceive(deadline));
    std::byte* local = blocks.data + segment.offset;
    const bool last = i >= first_own;
    std::byte* out = last ? own + (segment.offset - mine.front().offset) : local;
    Reduce(slot(i), local, out, segment.bytes / ElementSize(type), type, op);
    MUSTER_RETURN_IF_ERROR(receive(i + kReceiveWindow));
    if (last) continue;
    MUSTER_RETURN_IF_ERROR(link_->PostSend(local, segment.bytes));
    ++sends;
  }
  return WaitSends(sends, deadline);
}

Status RingCollectives::AllGather(const void* shard, void* full, std::size_t bytes,
                                  Deadline deadline) {
  std::byte* place = static_cast<std::byte*>(full) + bytes * static_cast<std::size_t>(rank_);
  if (place != shard && bytes > 0) std::memcpy(place, shard, bytes);
  if (size_ == 1 || bytes == 0) return OkStatus();
  return GatherBlocks(
      {static_cast<std::byte*>(full), bytes * static_cast<std::size_t>(size_), bytes}, deadline);
}

float* RingCollectives::Widened(const void* data, std::size_t count) {
  if (widened_.size() < count) widened_.resize(count);
  WidenBFloat16(static_cast<const std::uint16_t*>(data), widened_.data(), count);
  return widened_.data();
}

Status RingCollectives::ReduceScatter(void* full, void* shard, std::size_t count, ElementType type,
                                      ReduceOp op, Deadline deadline) {
  const std::size_t bytes = count * ElementSize(type);
  if (count == 0) return OkStatus();
  if (size_ == 1) {
    if (full != shard) std::memmove(shard, full, bytes);
    return OkStatus();
  }
  const std::size_t total = count * static_cast<std::size_t>(size_);
  if (type != ElementType::kBFloat16) {
    return ReduceBlocks({static_cast<std::byte*>(full), total * ElementSize(type), bytes},
                        static_cast<std::byte*>(shard), type, op, deadline);
  }
  float* wide = Widened(full, total);
  float* own = wide + count * static_cast<std::size_t>(rank_);
  MUSTER_RETURN_IF_ERROR(ReduceBlocks(
      {reinterpret_cast<std::byte*>(wide), total * sizeof(float), count * sizeof(float)},
      reinterpret_cast<std::byte*>(own), ElementType::kFloat32, op, deadline));
  NarrowToBFloat16(own, static_cast<std::uint16_t*>(shard), count);
  return OkStatus();
}

// Every rank adds up the same values in the same order, so all get the same bits.
Status RingCollectives::SmallAllReduce(void* data, std::size_t count, ElementType type, ReduceOp op,
                                       Deadline deadline) {
  const std::size_t bytes = count * ElementSize(type);
  const std::size_t ranks = static_cast<std::size_t>(size_);
  if (scratch_.size() < bytes * ranks) scratch_.resize(bytes * ranks);
  MUSTER_RETURN_IF_ERROR(AllGather(data, scratch_.data(), bytes, deadline));
  std::byte* sum = scratch_.data();
  for (std::size_t r = 1; r < ranks; ++r) Reduce(sum, sum + r * bytes, sum, count, type, op);
  std::memcpy(data, sum, bytes);
  return OkStatus();
}

Status RingCollectives::AllReduce(void* data, std::size_t count, ElementType type, ReduceOp op,
                                  Deadline deadline) {
  if (size_ == 1 || count == 0) return OkStatus();
  if (type == ElementType::kBFloat16) {
    float* wide = Widened(data, count);
    MUSTER_RETURN_IF_ERROR(AllReduce(wide, count, ElementType::kFloat32, op, deadline));
    NarrowToBFloat16(wide, static_cast<std::uint16_t*>(data), count);
    return OkStatus();
  }
  const std::size_t ranks = static_cast<std::size_t>(size_);
  const std::size_t element = ElementSize(type);
  if (count * element * ranks <= kSmallBytes) {
    return SmallAllReduce(data, count, type, op, deadline);
  }
  const std::size_t block = (count + ranks - 1) / ranks * element;
  const Blocks blocks{static_cast<std::byte*>(data), count * element, block};
  std::byte* own = blocks.data + std::min(blocks.total, block * static_cast<std::size_t>(rank_));
  MUSTER_RETURN_IF_ERROR(ReduceBlocks(blocks, own, type, op, deadline));
  return GatherBlocks(blocks, deadline);
}

Status RingCollectives::Broadcast(void* data, std::size_t bytes, int root, Deadline deadline) {
  if (size_ == 1 || bytes == 0) return OkStatus();
  const Blocks blocks{static_cast<std::byte*>(data), bytes, bytes};
  const std::vector<Segment> segments = SegmentsOf(blocks, 0);
  const bool receives = rank_ != root;
  const bool sends = Block(1) != root;
  if (receives) {
    for (const Segment& segment : segments) {
      MUSTER_RETURN_IF_ERROR(link_->PostReceive(blocks.data + segment.offset, segment.bytes));
    }
  }
  for (const Segment& segment : segments) {
    if (receives) MUSTER_RETURN_IF_ERROR(link_->WaitReceive(deadline));
    if (sends) {
      MUSTER_RETURN_IF_ERROR(link_->PostSend(blocks.data + segment.offset, segment.bytes));
    }
  }
  return sends ? WaitSends(segments.size(), deadline) : OkStatus();
}

Status RingCollectives::Barrier(Deadline deadline) {
  std::vector<std::byte> tokens(static_cast<std::size_t>(size_));
  return AllGather(tokens.data() + rank_, tokens.data(), 1, deadline);
}

}  // namespace muster
