#include "trainer/comm/transport/ring_reduction.h"

#include <algorithm>
#include <array>

namespace muster {
namespace {

// A multiple of every element size. Small enough that a chunk is still in cache when it is added,
// large enough that its three messages on the wire do not matter.
constexpr std::size_t kChunkBytes = 256 * 1024;
constexpr std::size_t kWindow = 8;

}  // namespace

std::size_t RingReduction::ScratchBytes() { return 2 * kWindow * kChunkBytes; }

RingReduction::RingReduction(RingLink& link, int rank, int size, const Args& args,
                             std::byte* scratch)
    : link_(link),
      rank_(rank),
      size_(size),
      args_(args),
      scratch_(scratch),
      chunk_(kChunkBytes / ElementSize(args.sum_type)),
      chunks_((args.block + chunk_ - 1) / chunk_),
      transfers_(chunks_ * static_cast<std::size_t>(size - 1)) {}

RingReduction::Transfer RingReduction::At(std::size_t index) const {
  const std::size_t steps = static_cast<std::size_t>(size_ - 1);
  const std::size_t first = index / (kWindow * steps) * kWindow;
  const std::size_t stride = std::min(kWindow, chunks_ - first);
  const std::size_t within = index - first * steps;
  return {first + within % stride, static_cast<int>(within / stride), stride};
}

RingReduction::Range RingReduction::RangeOf(int steps_behind, std::size_t chunk) const {
  const std::size_t block = static_cast<std::size_t>((rank_ - steps_behind + 2 * size_) % size_);
  const std::size_t begin = std::min(args_.total, block * args_.block + chunk * chunk_);
  const std::size_t length = std::min(chunk_, args_.block - chunk * chunk_);
  return {begin, std::min(length, args_.total - begin)};
}

Operand RingReduction::Local(const Range& range) const {
  return {
      static_cast<const std::byte*>(args_.full.data) + range.begin * ElementSize(args_.full.type),
      args_.full.type};
}

std::byte* RingReduction::SendSlot(std::size_t index) const {
  return scratch_ + index % kWindow * kChunkBytes;
}

std::byte* RingReduction::ReceiveSlot(std::size_t index) const {
  return scratch_ + (kWindow + index % kWindow) * kChunkBytes;
}

Status RingReduction::PostReceive(std::size_t index) {
  if (index >= transfers_) return OkStatus();
  const Transfer transfer = At(index);
  const Range range = RangeOf(transfer.step + 2, transfer.chunk);
  if (range.count == 0) return OkStatus();
  return link_.PostReceive(ReceiveSlot(index), range.count * ElementSize(args_.sum_type));
}

Status RingReduction::SettleSends(std::size_t index, Deadline deadline) {
  while (!under_way_.empty() && under_way_.front() < index) {
    MUSTER_RETURN_IF_ERROR(link_.WaitSend(deadline));
    under_way_.pop_front();
  }
  return OkStatus();
}

Status RingReduction::Send(std::size_t index, const Transfer& transfer, Deadline deadline) {
  const Range range = RangeOf(transfer.step + 1, transfer.chunk);
  if (range.count == 0) return OkStatus();
  const void* data = SendSlot(index);
  if (transfer.step == 0 && args_.full.type == args_.sum_type) {
    data = Local(range).data;
  } else if (transfer.step == 0) {
    MUSTER_RETURN_IF_ERROR(SettleSends(index + 1 - std::min(index + 1, kWindow), deadline));
    Convert(Local(range), SendSlot(index), args_.sum_type, range.count);
  }
  under_way_.push_back(index);
  return link_.PostSend(data, range.count * ElementSize(args_.sum_type));
}

Status RingReduction::SendReady(std::size_t done, Deadline deadline) {
  for (; sent_ < transfers_ && sent_ < done + kWindow; ++sent_) {
    const Transfer transfer = At(sent_);
    if (transfer.step > 0 && sent_ - transfer.stride >= done) break;
    MUSTER_RETURN_IF_ERROR(Send(sent_, transfer, deadline));
  }
  return OkStatus();
}

Status RingReduction::WorkOff(std::size_t index, Deadline deadline) {
  const Transfer transfer = At(index);
  const Range range = RangeOf(transfer.step + 2, transfer.chunk);
  if (range.count == 0) return OkStatus();
  MUSTER_RETURN_IF_ERROR(link_.WaitReceive(deadline));
  const std::array<Operand, 2> operands = {Operand{ReceiveSlot(index), args_.sum_type},
                                           Local(range)};
  if (transfer.step == size_ - 2) {
    ReduceTarget own = args_.own;
    own.data = static_cast<std::byte*>(own.data) + transfer.chunk * chunk_ * ElementSize(own.type);
    Reduce(operands, args_.sum_type, args_.op, own, range.count);
    return OkStatus();
  }
  const std::size_t next = index + transfer.stride;
  MUSTER_RETURN_IF_ERROR(SettleSends(next + 1 - std::min(next + 1, kWindow), deadline));
  Reduce(operands, args_.sum_type, args_.op, {.data = SendSlot(next), .type = args_.sum_type},
         range.count);
  return OkStatus();
}

Status RingReduction::Run(Deadline deadline) {
  for (std::size_t i = 0; i < kWindow; ++i) MUSTER_RETURN_IF_ERROR(PostReceive(i));
  MUSTER_RETURN_IF_ERROR(SendReady(0, deadline));
  for (std::size_t done = 0; done < transfers_; ++done) {
    MUSTER_RETURN_IF_ERROR(WorkOff(done, deadline));
    MUSTER_RETURN_IF_ERROR(PostReceive(done + kWindow));
    MUSTER_RETURN_IF_ERROR(SendReady(done + 1, deadline));
  }
  return SettleSends(transfers_, deadline);
}

}  // namespace muster
