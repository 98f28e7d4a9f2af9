#include "trainer/comm/transport/shared/shared_collectives.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace muster {
namespace {

constexpr std::size_t kPieceBytes = SharedControlBlock::kPieceBytes;

std::size_t Pieces(std::size_t count, std::size_t piece) { return (count + piece - 1) / piece; }

void Copy(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, bytes);
}

}  // namespace

std::size_t SharedCollectives::Blocks::Begin(int rank, std::size_t offset) const {
  return std::min(total, static_cast<std::size_t>(rank) * block + offset);
}

std::size_t SharedCollectives::Blocks::Count(int rank, std::size_t offset,
                                             std::size_t length) const {
  const std::size_t wanted = std::min(length, block - std::min(block, offset));
  return std::min(wanted, total - Begin(rank, offset));
}

void SharedCollectives::AddRegion(RegionKind kind, const std::shared_ptr<std::byte>& memory,
                                  std::size_t bytes, std::size_t stride) {
  regions_.push_back({kind, memory, bytes, stride});
}

void SharedCollectives::Locate(const void* data, std::size_t bytes, OpDescriptor* notice) const {
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    const Region& region = regions_[i];
    const auto memory = region.memory.lock();
    if (!memory) continue;
    const std::byte* start = memory.get();
    if (region.kind == RegionKind::kPerRank)
      start += static_cast<std::size_t>(rank_) * region.stride;
    const auto* at = static_cast<const std::byte*>(data);
    if (at < start || at + bytes > start + region.bytes) continue;
    notice->region = static_cast<std::int32_t>(i);
    notice->offset = static_cast<std::uint64_t>(at - start);
    return;
  }
}

OpDescriptor SharedCollectives::NoticeOf(const Operation& o) const {
  OpDescriptor notice{.kind = o.kind,
                      .type = o.type,
                      .sum_type = o.type,
                      .op = o.op,
                      .root = o.root,
                      .count = o.count,
                      .region = -1,
                      .offset = 0,
                      .in_place = false};
  const auto ranks = static_cast<std::size_t>(size_);
  if (o.kind == CollectiveOp::kAllGather) {
    const std::size_t shard = o.count * ElementSize(o.type);
    Locate(o.data, shard * ranks, &notice);
    notice.in_place =
        o.source == static_cast<std::byte*>(o.data) + shard * static_cast<std::size_t>(rank_);
  } else if (o.kind == CollectiveOp::kReduceScatter) {
    const ReduceScatterArgs& args = o.reduce_scatter;
    notice.type = args.full_type;
    notice.sum_type = args.sum_type;
    notice.op = args.op;
    notice.count = args.count;
    Locate(args.full, args.count * ElementSize(args.full_type) * ranks, &notice);
  } else if (o.kind == CollectiveOp::kAllToAll) {
    notice.count = *std::ranges::max_element(o.send_bytes);
  }
  return notice;
}

Status SharedCollectives::CheckAgreement(std::uint64_t number) const {
  const OpDescriptor& own = Notice(rank_, number);
  for (int peer = 0; peer < size_; ++peer) {
    const OpDescriptor& other = Notice(peer, number);
    const bool same_count = own.count == other.count || own.kind == CollectiveOp::kAllToAll;
    if (own.kind == other.kind && own.type == other.type && own.sum_type == other.sum_type &&
        own.op == other.op && own.root == other.root && same_count) {
      continue;
    }
    return Internal("rank " + std::to_string(rank_) + " and rank " + std::to_string(peer) +
                    " do not issue the same collectives");
  }
  return OkStatus();
}

bool SharedCollectives::AllIn(RegionKind kind, std::uint64_t number) const {
  for (int peer = 0; peer < size_; ++peer) {
    const std::int32_t region = Notice(peer, number).region;
    if (region < 0 || static_cast<std::size_t>(region) >= regions_.size()) return false;
    if (regions_[static_cast<std::size_t>(region)].kind != kind) return false;
  }
  return true;
}

bool SharedCollectives::IsReadByPeers(std::uint64_t number) const {
  return Notice(rank_, number).kind == CollectiveOp::kReduceScatter &&
         AllIn(RegionKind::kPerRank, number);
}

bool SharedCollectives::IsInPlace(std::uint64_t number) const {
  const OpDescriptor& own = Notice(rank_, number);
  if (size_ == 1 || own.kind == CollectiveOp::kBarrier) return true;
  if (own.kind == CollectiveOp::kReduceScatter) return AllIn(RegionKind::kPerRank, number);
  if (own.kind != CollectiveOp::kAllGather || !AllIn(RegionKind::kCommon, number)) return false;
  for (int peer = 0; peer < size_; ++peer) {
    const OpDescriptor& other = Notice(peer, number);
    const bool same_place = other.region == own.region && other.offset == own.offset;
    if (!same_place || !other.in_place) return false;
  }
  return true;
}

Status SharedCollectives::Execute(const Operation& operation, std::uint64_t number,
                                  Deadline deadline, std::uint64_t* bytes) {
  bytes_ = 0;
  Status status;
  switch (operation.kind) {
    case CollectiveOp::kAllGather: status = AllGather(operation, number, deadline); break;
    case CollectiveOp::kReduceScatter:
      status = ReduceScatter(operation.reduce_scatter, number, deadline);
      break;
    case CollectiveOp::kAllReduce: status = AllReduce(operation, deadline); break;
    case CollectiveOp::kBroadcast: status = Broadcast(operation, deadline); break;
    case CollectiveOp::kRingSendRecv: status = RingSendRecv(operation, deadline); break;
    case CollectiveOp::kAllToAll: status = AllToAll(operation, number, deadline); break;
    case CollectiveOp::kBarrier: break;
  }
  *bytes += bytes_;
  return status;
}

// A piece's place is written again only when all ranks have read what was there two pieces ago.
Status SharedCollectives::RunPieces(std::size_t pieces,
                                    const std::function<void(std::size_t, std::byte*)>& write,
                                    const std::function<void(std::size_t, std::uint64_t)>& read,
                                    Deadline deadline) {
  const std::uint64_t first = pieces_;
  const auto put = [&](std::size_t i) -> Status {
    const std::uint64_t piece = first + i;
    if (piece >= 2) {
      MUSTER_RETURN_IF_ERROR(control_block_.Await(&SharedLine::read, piece - 1, deadline));
    }
    write(i, control_block_.Staging(rank_, piece));
    control_block_.Advance(&SharedLine::written, piece + 1);
    return OkStatus();
  };
  pieces_ += pieces;
  for (std::size_t i = 0; i < pieces; ++i) {
    if (i == 0) MUSTER_RETURN_IF_ERROR(put(0));
    if (i + 1 < pieces) MUSTER_RETURN_IF_ERROR(put(i + 1));
    MUSTER_RETURN_IF_ERROR(control_block_.Await(&SharedLine::written, first + i + 1, deadline));
    read(i, first + i);
    control_block_.Advance(&SharedLine::read, first + i + 1);
  }
  return OkStatus();
}

Status SharedCollectives::GatherBlocks(const std::byte* own, std::byte* full, const Blocks& blocks,
                                       Deadline deadline) {
  const auto write = [&](std::size_t i, std::byte* to) {
    Copy(to, own + i * kPieceBytes, blocks.Count(rank_, i * kPieceBytes, kPieceBytes));
  };
  const auto read = [&](std::size_t i, std::uint64_t piece) {
    for (int r = 1; r < size_; ++r) {
      const int peer = (rank_ + r) % size_;
      const std::size_t bytes = blocks.Count(peer, i * kPieceBytes, kPieceBytes);
      Copy(full + blocks.Begin(peer, i * kPieceBytes), control_block_.Staging(peer, piece), bytes);
      bytes_ += bytes;
    }
  };
  return RunPieces(Pieces(blocks.block, kPieceBytes), write, read, deadline);
}

Status SharedCollectives::AllGather(const Operation& o, std::uint64_t number, Deadline deadline) {
  const std::size_t block = o.count * ElementSize(o.type);
  auto* full = static_cast<std::byte*>(o.data);
  std::byte* place = full + block * static_cast<std::size_t>(rank_);
  if (size_ == 1) {
    Copy(place, o.source, block);
    return OkStatus();
  }
  if (IsInPlace(number) || block == 0) return OkStatus();
  const OpDescriptor& own = Notice(rank_, number);
  bool one_array = AllIn(RegionKind::kCommon, number);
  for (int peer = 0; peer < size_; ++peer) {
    const OpDescriptor& other = Notice(peer, number);
    one_array = one_array && other.region == own.region && other.offset == own.offset;
  }
  if (one_array) {
    // Every rank has issued this, so no rank reads the array any more.
    return RunPieces(
        1, [&](std::size_t, std::byte*) { Copy(place, o.source, block); },
        [](std::size_t, std::uint64_t) {}, deadline);
  }
  Copy(place, o.source, block);
  return GatherBlocks(place, full, {block * static_cast<std::size_t>(size_), block}, deadline);
}

// Block b is added up in the order b+1, b+2, ... b.
Status SharedCollectives::ReduceInPlace(const ReduceScatterArgs& args, std::uint64_t number) {
  std::vector<Operand> operands;
  const std::size_t own =
      static_cast<std::size_t>(rank_) * args.count * ElementSize(args.full_type);
  std::vector<std::shared_ptr<std::byte>> held;
  for (int r = 1; r <= size_; ++r) {
    const int peer = (rank_ + r) % size_;
    const OpDescriptor& notice = Notice(peer, number);
    const Region& region = regions_[static_cast<std::size_t>(notice.region)];
    held.push_back(region.memory.lock());
    if (!held.back()) return FailedPrecondition("a region went before the operations on it");
    operands.push_back(
        {held.back().get() + static_cast<std::size_t>(peer) * region.stride + notice.offset + own,
         args.full_type});
  }
  Reduce(operands, args.sum_type, args.op, {args.shard, args.shard_type, args.accumulate},
         args.count);
  bytes_ += args.count * ElementSize(args.full_type) * static_cast<std::size_t>(size_ - 1);
  return OkStatus();
}

Status SharedCollectives::ReduceScatter(const ReduceScatterArgs& args, std::uint64_t number,
                                        Deadline deadline) {
  const Operand full{args.full, args.full_type};
  const ReduceTarget own{args.shard, args.shard_type, args.accumulate};
  if (size_ == 1) {
    Reduce({&full, 1}, args.sum_type, args.op, own, args.count);
    return OkStatus();
  }
  if (AllIn(RegionKind::kPerRank, number)) return ReduceInPlace(args, number);
  const Blocks blocks{args.count * static_cast<std::size_t>(size_), args.count};
  return ReduceBlocks(full, blocks, args.sum_type, args.op, own, deadline);
}

Status SharedCollectives::ReduceBlocks(const Operand& full, const Blocks& blocks,
                                       ElementType sum_type, ReduceOp op, const ReduceTarget& own,
                                       Deadline deadline) {
  const std::size_t element = ElementSize(full.type);
  const std::size_t length = kPieceBytes / static_cast<std::size_t>(size_) / element;
  const auto* data = static_cast<const std::byte*>(full.data);
  // A rank's part of a piece holds `length` elements for each of the others.
  const auto slot = [=](std::byte* part, int rank) {
    return part + static_cast<std::size_t>(rank) * length * element;
  };
  const auto write = [&](std::size_t i, std::byte* to) {
    for (int r = 1; r < size_; ++r) {
      const int peer = (rank_ + r) % size_;
      Copy(slot(to, peer), data + blocks.Begin(peer, i * length) * element,
           blocks.Count(peer, i * length, length) * element);
    }
  };
  const auto read = [&](std::size_t i, std::uint64_t piece) {
    std::vector<Operand> operands;
    for (int r = 1; r < size_; ++r) {
      operands.push_back(
          {slot(control_block_.Staging((rank_ + r) % size_, piece), rank_), full.type});
    }
    operands.push_back({data + blocks.Begin(rank_, i * length) * element, full.type});
    ReduceTarget target = own;
    target.data = static_cast<std::byte*>(own.data) + i * length * ElementSize(own.type);
    const std::size_t count = blocks.Count(rank_, i * length, length);
    Reduce(operands, sum_type, op, target, count);
    bytes_ += count * element * static_cast<std::size_t>(size_ - 1);
  };
  return RunPieces(Pieces(blocks.block, length), write, read, deadline);
}

// Every rank adds up the same values in the same order, so all get the same bits.
Status SharedCollectives::SmallAllReduce(const Operation& o, Deadline deadline) {
  const std::size_t bytes = o.count * ElementSize(o.type);
  const auto write = [&](std::size_t, std::byte* to) { Copy(to, o.data, bytes); };
  const auto read = [&](std::size_t, std::uint64_t piece) {
    std::vector<Operand> operands;
    for (int r = 0; r < size_; ++r) operands.push_back({control_block_.Staging(r, piece), o.type});
    Reduce(operands, PartialSumType(o.type), o.op, {.data = o.data, .type = o.type}, o.count);
    bytes_ += bytes * static_cast<std::size_t>(size_ - 1);
  };
  return RunPieces(1, write, read, deadline);
}

Status SharedCollectives::AllReduce(const Operation& o, Deadline deadline) {
  if (size_ == 1 || o.count == 0) return OkStatus();
  if (IsSmallAllReduce(o.count, o.type, size_)) return SmallAllReduce(o, deadline);
  const std::size_t element = ElementSize(o.type);
  const Blocks blocks{o.count, AllReduceBlock(o.count, size_)};
  auto* data = static_cast<std::byte*>(o.data);
  std::byte* own = data + blocks.Begin(rank_, 0) * element;
  MUSTER_RETURN_IF_ERROR(ReduceBlocks({data, o.type}, blocks, PartialSumType(o.type), o.op,
                                      {.data = own, .type = o.type}, deadline));
  return GatherBlocks(own, data, {o.count * element, blocks.block * element}, deadline);
}

Status SharedCollectives::Broadcast(const Operation& o, Deadline deadline) {
  if (size_ == 1) return OkStatus();
  auto* data = static_cast<std::byte*>(o.data);
  const auto bytes = [&](std::size_t i) {
    return std::min(kPieceBytes, o.count - i * kPieceBytes);
  };
  const auto write = [&](std::size_t i, std::byte* to) {
    if (rank_ == o.root) Copy(to, data + i * kPieceBytes, bytes(i));
  };
  const auto read = [&](std::size_t i, std::uint64_t piece) {
    if (rank_ == o.root) return;
    Copy(data + i * kPieceBytes, control_block_.Staging(o.root, piece), bytes(i));
    bytes_ += bytes(i);
  };
  return RunPieces(Pieces(o.count, kPieceBytes), write, read, deadline);
}

Status SharedCollectives::RingSendRecv(const Operation& o, Deadline deadline) {
  const auto* send = static_cast<const std::byte*>(o.source);
  auto* receive = static_cast<std::byte*>(o.data);
  if (size_ == 1) {
    Copy(receive, send, o.count);
    return OkStatus();
  }
  const int previous = (rank_ + size_ - 1) % size_;
  const auto bytes = [&](std::size_t i) {
    return std::min(kPieceBytes, o.count - i * kPieceBytes);
  };
  const auto write = [&](std::size_t i, std::byte* to) {
    Copy(to, send + i * kPieceBytes, bytes(i));
  };
  const auto read = [&](std::size_t i, std::uint64_t piece) {
    Copy(receive + i * kPieceBytes, control_block_.Staging(previous, piece), bytes(i));
    bytes_ += bytes(i);
  };
  return RunPieces(Pieces(o.count, kPieceBytes), write, read, deadline);
}

// A rank's part of a piece has a slot for each of the others: how long the block is, and of it what
// fits. There are as many pieces as the longest block of any rank takes.
Status SharedCollectives::AllToAll(const Operation& o, std::uint64_t number, Deadline deadline) {
  const auto ranks = static_cast<std::size_t>(size_), mine = static_cast<std::size_t>(rank_);
  const std::vector<std::size_t> sent = BlockBegins(o.send_bytes);
  const std::vector<std::size_t> received = BlockBegins(o.receive_bytes);
  const auto* send = static_cast<const std::byte*>(o.source);
  auto* receive = static_cast<std::byte*>(o.data);
  Copy(receive + received[mine], send + sent[mine], o.send_bytes[mine]);
  if (size_ == 1) return OkStatus();
  constexpr std::size_t kHead = sizeof(std::uint64_t);
  const std::size_t slot = kPieceBytes / ranks / kHead * kHead, fits = slot - kHead;
  const auto part = [=](std::size_t block, std::size_t i) {
    return std::min(fits, block - std::min(block, i * fits));
  };
  std::size_t longest = 1;
  for (int peer = 0; peer < size_; ++peer) {
    longest = std::max<std::size_t>(longest, Notice(peer, number).count);
  }
  Status agreed;
  const auto write = [&](std::size_t i, std::byte* to) {
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      if (peer == mine) continue;
      const std::uint64_t block = o.send_bytes[peer];
      std::memcpy(to + peer * slot, &block, kHead);
      Copy(to + peer * slot + kHead, send + sent[peer] + i * fits, part(block, i));
    }
  };
  const auto read = [&](std::size_t i, std::uint64_t piece) {
    for (int r = 1; r < size_; ++r) {
      const int peer = (rank_ + r) % size_;
      const auto from = static_cast<std::size_t>(peer);
      const std::byte* const place = control_block_.Staging(peer, piece) + mine * slot;
      std::uint64_t block = 0;
      std::memcpy(&block, place, kHead);
      if (block != o.receive_bytes[from]) {
        agreed = OtherBlock(peer, block, rank_, o.receive_bytes[from]);
        return;
      }
      Copy(receive + received[from] + i * fits, place + kHead, part(block, i));
      bytes_ += part(block, i);
    }
  };
  MUSTER_RETURN_IF_ERROR(RunPieces(Pieces(longest, fits), write, read, deadline));
  return agreed;
}

}  // namespace muster
