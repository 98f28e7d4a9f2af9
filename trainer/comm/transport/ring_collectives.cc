#include "trainer/comm/transport/ring_collectives.h"

#include <algorithm>
#include <cstring>

#include "trainer/comm/transport/reduce.h"
#include "trainer/comm/transport/ring_reduction.h"

namespace muster {
namespace {

// What a rank sends on is still in cache, and the messages beside a segment do not matter.
constexpr std::size_t kSegmentBytes = 256 * 1024;

}  // namespace

std::vector<RingCollectives::Segment> RingCollectives::SegmentsOf(const Blocks& blocks, int block) {
  const std::size_t begin = std::min(blocks.total, blocks.block * static_cast<std::size_t>(block));
  const std::size_t end = std::min(blocks.total, begin + blocks.block);
  std::vector<Segment> segments;
  for (std::size_t at = begin; at < end; at += kSegmentBytes) {
    segments.push_back({at, std::min(kSegmentBytes, end - at)});
  }
  return segments;
}

std::byte* RingCollectives::Scratch(std::size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
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

Status RingCollectives::AllGather(const void* shard, void* full, std::size_t bytes,
                                  Deadline deadline) {
  std::byte* place = static_cast<std::byte*>(full) + bytes * static_cast<std::size_t>(rank_);
  if (place != shard && bytes > 0) std::memcpy(place, shard, bytes);
  if (size_ == 1 || bytes == 0) return OkStatus();
  return GatherBlocks(
      {static_cast<std::byte*>(full), bytes * static_cast<std::size_t>(size_), bytes}, deadline);
}

Status RingCollectives::ReduceScatter(const ReduceScatterArgs& args, Deadline deadline) {
  if (args.count == 0) return OkStatus();
  const Operand full{args.full, args.full_type};
  const ReduceTarget own{args.shard, args.shard_type, args.accumulate};
  if (size_ == 1) {
    Reduce({&full, 1}, args.sum_type, args.op, own, args.count);
    return OkStatus();
  }
  RingReduction reduction(*link_, rank_, size_,
                          {.full = full,
                           .total = args.count * static_cast<std::size_t>(size_),
                           .block = args.count,
                           .sum_type = args.sum_type,
                           .op = args.op,
                           .own = own},
                          Scratch(RingReduction::ScratchBytes()));
  return reduction.Run(deadline);
}

// Every rank adds up the same values in the same order, so all get the same bits.
Status RingCollectives::SmallAllReduce(void* data, std::size_t count, ElementType type, ReduceOp op,
                                       Deadline deadline) {
  const std::size_t bytes = count * ElementSize(type);
  std::byte* all = Scratch(bytes * static_cast<std::size_t>(size_));
  MUSTER_RETURN_IF_ERROR(AllGather(data, all, bytes, deadline));
  std::vector<Operand> operands;
  for (int r = 0; r < size_; ++r) {
    operands.push_back({all + static_cast<std::size_t>(r) * bytes, type});
  }
  Reduce(operands, PartialSumType(type), op, {.data = data, .type = type}, count);
  return OkStatus();
}

Status RingCollectives::AllReduce(void* data, std::size_t count, ElementType type, ReduceOp op,
                                  Deadline deadline) {
  if (size_ == 1 || count == 0) return OkStatus();
  if (IsSmallAllReduce(count, type, size_)) return SmallAllReduce(data, count, type, op, deadline);
  const std::size_t element = ElementSize(type);
  const std::size_t block = AllReduceBlock(count, size_);
  const Blocks blocks{static_cast<std::byte*>(data), count * element, block * element};
  std::byte* own =
      blocks.data + std::min(blocks.total, blocks.block * static_cast<std::size_t>(rank_));
  RingReduction reduction(*link_, rank_, size_,
                          {.full = {data, type},
                           .total = count,
                           .block = block,
                           .sum_type = PartialSumType(type),
                           .op = op,
                           .own = {.data = own, .type = type}},
                          Scratch(RingReduction::ScratchBytes()));
  MUSTER_RETURN_IF_ERROR(reduction.Run(deadline));
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

// In segments, so that a large block leaves room for the other rings of this host in between.
Status RingCollectives::RingSendRecv(const void* send, void* receive, std::size_t bytes,
                                     Deadline deadline) {
  if (size_ == 1) {
    if (bytes > 0) std::memcpy(receive, send, bytes);
    return OkStatus();
  }
  const std::vector<Segment> segments = SegmentsOf({nullptr, bytes, bytes}, 0);
  for (const Segment& segment : segments) {
    MUSTER_RETURN_IF_ERROR(
        link_->PostReceive(static_cast<std::byte*>(receive) + segment.offset, segment.bytes));
  }
  for (const Segment& segment : segments) {
    MUSTER_RETURN_IF_ERROR(
        link_->PostSend(static_cast<const std::byte*>(send) + segment.offset, segment.bytes));
  }
  for (std::size_t i = 0; i < segments.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(link_->WaitReceive(deadline));
  }
  return WaitSends(segments.size(), deadline);
}

Status RingCollectives::Barrier(Deadline deadline) {
  std::vector<std::byte> tokens(static_cast<std::size_t>(size_));
  return AllGather(tokens.data() + rank_, tokens.data(), 1, deadline);
}

}  // namespace muster
