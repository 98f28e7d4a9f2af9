#include "trainer/comm/transport/ring_collectives.h"

#include <algorithm>
#include <cstring>

#include "trainer/comm/transport/reduce.h"
#include "trainer/comm/transport/ring_reduction.h"

namespace muster {
namespace {

// What a rank sends on is still in cache, and the messages beside a segment do not matter.
constexpr std::size_t kSegmentBytes = 256 * 1024;
// What a rank holds for others in an all-to-all, about, and the least of one block.
constexpr std::size_t kPassedBytes = 2 * 1024 * 1024;
constexpr std::size_t kShortestPart = 4 * 1024;

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

std::size_t RingCollectives::BlockParts::Bytes(int from, int to, int size) const {
  const std::size_t block = blocks[static_cast<std::size_t>(from * size + to)];
  return std::min(length, block - std::min(block, begin));
}

Status RingCollectives::AllToAll(const Operation& o, Deadline deadline) {
  const auto ranks = static_cast<std::size_t>(size_), mine = static_cast<std::size_t>(rank_);
  if (o.send_bytes[mine] > 0) {
    std::memcpy(static_cast<std::byte*>(o.data) + BlockBegins(o.receive_bytes)[mine],
                static_cast<const std::byte*>(o.source) + BlockBegins(o.send_bytes)[mine],
                o.send_bytes[mine]);
  }
  if (size_ == 1) return OkStatus();
  std::vector<std::uint64_t> blocks(ranks * ranks);
  std::uint64_t* const own = blocks.data() + mine * ranks;
  std::ranges::copy(o.send_bytes, own);
  MUSTER_RETURN_IF_ERROR(AllGather(own, blocks.data(), ranks * sizeof(std::uint64_t), deadline));
  std::size_t longest = 0;
  for (int from = 0; from < size_; ++from) {
    const std::size_t sent = blocks[static_cast<std::size_t>(from) * ranks + mine];
    const std::size_t awaited = o.receive_bytes[static_cast<std::size_t>(from)];
    if (sent != awaited) return OtherBlock(from, sent, rank_, awaited);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i / ranks != i % ranks) longest = std::max<std::size_t>(longest, blocks[i]);
  }
  const std::size_t part = std::max(kShortestPart, kPassedBytes / ranks);
  for (std::size_t begin = 0; begin < longest; begin += part) {
    MUSTER_RETURN_IF_ERROR(PassParts(o, {blocks, begin, part}, deadline));
  }
  return OkStatus();
}

// In step s a rank sends on what the rank s places behind it has for those beyond this one, the
// nearest first, and gets the same of the rank behind that, of which the first is its own.
Status RingCollectives::PassParts(const Operation& o, const BlockParts& parts, Deadline deadline) {
  const std::vector<std::size_t> sent = BlockBegins(o.send_bytes);
  const std::vector<std::size_t> received = BlockBegins(o.receive_bytes);
  const std::size_t half = parts.length * static_cast<std::size_t>(size_);
  std::byte* const held = Scratch(2 * half);
  for (int step = 0; step < size_ - 1; ++step) {
    const int from = Block(-step - 1), passed = Block(-step);
    std::size_t receives = 0, sends = 0;
    std::byte* in = held + static_cast<std::size_t>(step % 2) * half;
    for (int k = 0; k < size_ - 1 - step; ++k) {
      const std::size_t bytes = parts.Bytes(from, Block(k), size_);
      std::byte* const own =
          static_cast<std::byte*>(o.data) + received[static_cast<std::size_t>(from)] + parts.begin;
      if (bytes > 0) MUSTER_RETURN_IF_ERROR(link_->PostReceive(k == 0 ? own : in, bytes));
      if (bytes > 0) ++receives;
      if (k > 0) in += bytes;
    }
    const std::byte* out = held + static_cast<std::size_t>((step + 1) % 2) * half;
    for (int k = 1; k < size_ - step; ++k) {
      const std::size_t bytes = parts.Bytes(passed, Block(k), size_);
      const std::byte* const own = static_cast<const std::byte*>(o.source) +
                                   sent[static_cast<std::size_t>(Block(k))] + parts.begin;
      if (bytes > 0) MUSTER_RETURN_IF_ERROR(link_->PostSend(step == 0 ? own : out, bytes));
      if (bytes > 0) ++sends;
      out += bytes;
    }
    for (std::size_t i = 0; i < receives; ++i) MUSTER_RETURN_IF_ERROR(link_->WaitReceive(deadline));
    MUSTER_RETURN_IF_ERROR(WaitSends(sends, deadline));
  }
  return OkStatus();
}

Status RingCollectives::Barrier(Deadline deadline) {
  std::vector<std::byte> tokens(static_cast<std::size_t>(size_));
  return AllGather(tokens.data() + rank_, tokens.data(), 1, deadline);
}

}  // namespace muster
