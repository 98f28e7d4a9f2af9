#include "trainer/comm/transport/nccl/nccl_transport.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "trainer/comm/transport/nccl/nccl_network.h"

namespace muster {
namespace {

NcclType TypeOf(ElementType type) {
  switch (type) {
    case ElementType::kUint8: return NcclType::kUint8;
    case ElementType::kInt64: return NcclType::kInt64;
    case ElementType::kBFloat16: return NcclType::kBFloat16;
    case ElementType::kFloat16: return NcclType::kFloat16;
    case ElementType::kFloat32: return NcclType::kFloat32;
    case ElementType::kFloat64: return NcclType::kFloat64;
  }
  return NcclType::kUint8;
}

NcclOp OpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return NcclOp::kSum;
    case ReduceOp::kMin: return NcclOp::kMin;
    case ReduceOp::kMax: return NcclOp::kMax;
  }
  return NcclOp::kSum;
}

bool IsReduction(CollectiveOp kind) {
  return kind == CollectiveOp::kReduceScatter || kind == CollectiveOp::kAllReduce ||
         kind == CollectiveOp::kBarrier;
}

std::byte* At(void* data, std::size_t elements, ElementType type) {
  return static_cast<std::byte*>(data) + elements * ElementSize(type);
}

// Elements: pieces of sums begin where vector loads may.
constexpr std::size_t kPieceAlignment = 64;

}  // namespace

class NcclTransport::DeviceWork final : public Work {
 public:
  DeviceWork(std::shared_ptr<NcclGang> gang, std::shared_ptr<NcclOperation> operation)
      : gang_(std::move(gang)), operation_(std::move(operation)) {}
  // Dropped without Wait: what the trainer does next with the buffers still comes after it.
  ~DeviceWork() override {
    if (!waited_) (void)Wait();
  }
  Status Wait() override {
    waited_ = true;
    const WaitTimer timer(*operation_->counters);
    return gang_->OrderAfter(*operation_);
  }

 private:
  const std::shared_ptr<NcclGang> gang_;
  const std::shared_ptr<NcclOperation> operation_;
  bool waited_ = false;
};

class NcclTransport::HostWork final : public Work {
 public:
  // `staging` is null for a barrier.
  HostWork(std::shared_ptr<NcclGang> gang, std::shared_ptr<NcclOperation> operation,
           std::unique_ptr<HostStaging::Piece> staging, const HostMemory& memory)
      : gang_(std::move(gang)),
        operation_(std::move(operation)),
        staging_(std::move(staging)),
        memory_(memory) {}
  ~HostWork() override {
    if (!waited_) (void)Wait();
  }
  Status Wait() override {
    waited_ = true;
    const WaitTimer timer(*operation_->counters);
    Status status = gang_->AwaitEnd(*operation_);
    if (staging_ == nullptr) return status;
    if (status.ok()) {
      if (memory_.bytes > 0) std::memcpy(memory_.data, staging_->host(), memory_.bytes);
      gang_->staging().GiveBack(std::move(staging_));
    } else {
      staging_->Leak();
    }
    return status;
  }

 private:
  const std::shared_ptr<NcclGang> gang_;
  const std::shared_ptr<NcclOperation> operation_;
  std::unique_ptr<HostStaging::Piece> staging_;
  const HostMemory memory_;
  bool waited_ = false;
};

NcclTransport::NcclTransport(std::shared_ptr<const NcclTables> tables,
                             std::shared_ptr<NcclGang> gang,
                             std::shared_ptr<CollectiveCell> counters, Group group, const Ids& ids)
    : tables_(std::move(tables)),
      gang_(std::move(gang)),
      counters_(std::move(counters)),
      group_(std::move(group)),
      ids_(ids) {}

Status NcclTransport::Begin(Deadline deadline) {
  const std::string of =
      " of " + group_.name + " in generation " + std::to_string(group_.generation);
  MUSTER_ASSIGN_OR_RETURN(gathers_, gang_->OpenLane({"gathers" + of, group_.rank, group_.size},
                                                    ids_[0], counters_, deadline));
  MUSTER_ASSIGN_OR_RETURN(
      reductions_,
      gang_->OpenLane({"reductions" + of, group_.rank, group_.size}, ids_[1], counters_, deadline));
  return OkStatus();
}

std::string NcclTransport::Describe() const {
  int version = 0;
  if (group_.size == 1 || tables_->nccl.GetVersion(&version) != NcclResult::kSuccess) {
    return "one GPU";
  }
  return "NCCL " + NcclVersionText(version) + ", non-blocking, one communicator for gathers and " +
         "one for reductions";
}

std::string NcclTransport::fallback() const {
  if (group_.rank != 0 || !group_.spans_nodes) return "";
  return SocketFallback(ReadRdmaUse(tables_->root), std::getenv("NCCL_NET"));
}

std::unique_ptr<Work> NcclTransport::Submit(const Operation& o) {
  if (Status status = gang_->status(); !status.ok()) {
    return std::make_unique<FinishedWork>(std::move(status));
  }
  if (IsOverHostMemory(o)) return SubmitStaged(o);
  auto operation = Issue(o, [&](NcclLane& lane) { return Run(lane, o); });
  if (!operation.ok()) return std::make_unique<FinishedWork>(operation.status());
  if (o.kind == CollectiveOp::kBarrier) {
    return std::make_unique<HostWork>(gang_, *std::move(operation), nullptr, HostMemory{});
  }
  return std::make_unique<DeviceWork>(gang_, *std::move(operation));
}

bool NcclTransport::IsOverHostMemory(const Operation& o) const {
  const void* data = o.data;
  if (o.kind == CollectiveOp::kAllToAll) {
    // Empty buffers lie nowhere.
    if (BlockBegins(o.receive_bytes).back() == 0) data = o.source;
    if (data == o.source && BlockBegins(o.send_bytes).back() == 0) return false;
  }
  return o.kind != CollectiveOp::kReduceScatter && o.kind != CollectiveOp::kBarrier &&
         tables_->cuda->IsHostMemory(data);
}

NcclTransport::HostMemory NcclTransport::HostMemoryOf(const Operation& o) const {
  const std::size_t bytes = o.count * ElementSize(o.type);
  if (o.kind == CollectiveOp::kAllGather) {
    return {o.data, bytes * static_cast<std::size_t>(group_.size), o.source, bytes,
            bytes * static_cast<std::size_t>(group_.rank)};
  }
  if (o.kind == CollectiveOp::kRingSendRecv) return {o.data, bytes, o.source, bytes, bytes};
  if (o.kind == CollectiveOp::kAllToAll) {
    const std::size_t received = BlockBegins(o.receive_bytes).back();
    return {o.data, received, o.source, BlockBegins(o.send_bytes).back(), received};
  }
  return {o.data, bytes, o.data, bytes, 0};
}

std::unique_ptr<Work> NcclTransport::SubmitStaged(const Operation& o) {
  const HostMemory memory = HostMemoryOf(o);
  if (group_.size == 1 || memory.bytes + memory.in_bytes == 0) {
    counters_->started.fetch_add(1);
    if (memory.in_bytes > 0) std::memmove(memory.data, memory.in, memory.in_bytes);
    counters_->completed.fetch_add(1);
    return std::make_unique<FinishedWork>(OkStatus());
  }
  auto staging = gang_->staging().Take(std::max(memory.bytes, memory.in_offset + memory.in_bytes));
  if (!staging.ok()) return std::make_unique<FinishedWork>(staging.status());
  std::byte* const host = (*staging)->host();
  Operation staged = o;
  staged.data = (*staging)->device();
  std::byte* const in = (*staging)->device() + memory.in_offset;
  staged.source = in;
  if (memory.in_bytes > 0) std::memcpy(host + memory.in_offset, memory.in, memory.in_bytes);
  auto operation = Issue(o, [&](NcclLane& lane) {
    MUSTER_RETURN_IF_ERROR(Copy(lane, in, host + memory.in_offset, memory.in_bytes));
    MUSTER_RETURN_IF_ERROR(Run(lane, staged));
    return Copy(lane, host, staged.data, memory.bytes);
  });
  if (!operation.ok()) {
    (*staging)->Leak();
    return std::make_unique<FinishedWork>(operation.status());
  }
  return std::make_unique<HostWork>(gang_, *std::move(operation), *std::move(staging), memory);
}

Result<std::shared_ptr<NcclOperation>> NcclTransport::Issue(
    const Operation& o, const std::function<Status(NcclLane&)>& body) {
  NcclLane& lane = *(IsReduction(o.kind) ? reductions_ : gathers_);
  const std::size_t bytes = BytesSent(o, group_.rank, group_.size);
  const std::string name = std::string(CollectiveOpName(o.kind)) + " " +
                           std::to_string(counters_->enqueued) + " (" + std::to_string(bytes) +
                           " bytes)";
  auto operation = lane.Begin(name);
  Status status = operation.ok() ? body(lane) : operation.status();
  if (status.ok()) status = lane.Finish(*operation);
  if (!status.ok()) {
    gang_->Fail(status.WithContext(name));
    return gang_->status();
  }
  counters_->bytes.fetch_add(bytes);
  gang_->Wake();
  return operation;
}

Status NcclTransport::Run(NcclLane& lane, const Operation& o) {
  const NcclApi& nccl = tables_->nccl;
  const bool alone = group_.size == 1;
  switch (o.kind) {
    case CollectiveOp::kAllGather:
      if (alone) return Copy(lane, o.data, o.source, o.count * ElementSize(o.type));
      return lane.Call([&](NcclComm* comm, CudaStream stream) {
        return nccl.AllGather(o.source, o.data, o.count, TypeOf(o.type), comm, stream);
      });
    case CollectiveOp::kReduceScatter: return ReduceScatter(lane, o.reduce_scatter);
    case CollectiveOp::kAllReduce:
      if (alone) return OkStatus();
      return lane.Call([&](NcclComm* comm, CudaStream stream) {
        return nccl.AllReduce(o.data, o.data, o.count, TypeOf(o.type), OpOf(o.op), comm, stream);
      });
    case CollectiveOp::kBroadcast:
      if (alone) return OkStatus();
      return lane.Call([&](NcclComm* comm, CudaStream stream) {
        return nccl.Broadcast(o.data, o.data, o.count, NcclType::kUint8, o.root, comm, stream);
      });
    case CollectiveOp::kRingSendRecv:
      if (alone) return Copy(lane, o.data, o.source, o.count);
      return lane.Call(
          [&](NcclComm* comm, CudaStream stream) { return RingSendRecv(o, comm, stream); });
    case CollectiveOp::kAllToAll: return AllToAll(lane, o);
    case CollectiveOp::kBarrier: {
      if (alone) return OkStatus();
      MUSTER_ASSIGN_OR_RETURN(void* const word, lane.Word());
      return lane.Call([&](NcclComm* comm, CudaStream stream) {
        return nccl.AllReduce(word, word, 1, NcclType::kFloat32, NcclOp::kMax, comm, stream);
      });
    }
  }
  return Internal("an operation of no kind");
}

NcclResult NcclTransport::RingSendRecv(const Operation& o, NcclComm* comm,
                                       CudaStream stream) const {
  const NcclApi& nccl = tables_->nccl;
  const int next = (group_.rank + 1) % group_.size;
  const int previous = (group_.rank + group_.size - 1) % group_.size;
  const NcclResult begun = nccl.GroupStart();
  if (begun != NcclResult::kSuccess) return begun;
  const NcclResult sent = nccl.Send(o.source, o.count, NcclType::kUint8, next, comm, stream);
  const NcclResult received = nccl.Recv(o.data, o.count, NcclType::kUint8, previous, comm, stream);
  const NcclResult ended = nccl.GroupEnd();
  for (const NcclResult result : {sent, received}) {
    if (result != NcclResult::kSuccess && result != NcclResult::kInProgress) return result;
  }
  return ended;
}

Status NcclTransport::AllToAll(NcclLane& lane, const Operation& o) {
  const auto mine = static_cast<std::size_t>(group_.rank);
  const std::size_t from = BlockBegins(o.send_bytes)[mine], to = BlockBegins(o.receive_bytes)[mine];
  MUSTER_RETURN_IF_ERROR(Copy(lane, static_cast<std::byte*>(o.data) + to,
                              static_cast<const std::byte*>(o.source) + from, o.send_bytes[mine]));
  if (group_.size == 1) return OkStatus();
  return lane.Call([&](NcclComm* comm, CudaStream stream) { return SendBlocks(o, comm, stream); });
}

// One group of NCCL's: all blocks travel at once. Empty ones are none, on both sides.
NcclResult NcclTransport::SendBlocks(const Operation& o, NcclComm* comm, CudaStream stream) const {
  const NcclApi& nccl = tables_->nccl;
  const std::vector<std::size_t> sent = BlockBegins(o.send_bytes);
  const std::vector<std::size_t> received = BlockBegins(o.receive_bytes);
  NcclResult failed = NcclResult::kSuccess;
  const auto note = [&](NcclResult result) {
    if (result != NcclResult::kInProgress && failed == NcclResult::kSuccess) failed = result;
  };
  const NcclResult begun = nccl.GroupStart();
  if (begun != NcclResult::kSuccess) return begun;
  for (int r = 1; r < group_.size; ++r) {
    const int to = (group_.rank + r) % group_.size;
    const int from = (group_.rank + group_.size - r) % group_.size;
    const auto t = static_cast<std::size_t>(to), f = static_cast<std::size_t>(from);
    if (o.send_bytes[t] > 0) {
      note(nccl.Send(static_cast<const std::byte*>(o.source) + sent[t], o.send_bytes[t],
                     NcclType::kUint8, to, comm, stream));
    }
    if (o.receive_bytes[f] > 0) {
      note(nccl.Recv(static_cast<std::byte*>(o.data) + received[f], o.receive_bytes[f],
                     NcclType::kUint8, from, comm, stream));
    }
  }
  const NcclResult ended = nccl.GroupEnd();
  return failed != NcclResult::kSuccess ? failed : ended;
}

Status NcclTransport::ReduceScatter(NcclLane& lane, const ReduceScatterArgs& args) {
  const bool plain =
      args.full_type == args.sum_type && args.sum_type == args.shard_type && !args.accumulate;
  if (group_.size == 1) {
    if (plain) return Copy(lane, args.shard, args.full, args.count * ElementSize(args.full_type));
    const auto count = static_cast<std::int64_t>(args.count);
    return Convert(lane, {args.full, args.full_type, count, args.shard, args.shard_type, count, 1,
                          count, args.accumulate});
  }
  if (!plain) return ReduceInPieces(lane, args);
  return lane.Call([&](NcclComm* comm, CudaStream stream) {
    return tables_->nccl.ReduceScatter(args.full, args.shard, args.count, TypeOf(args.sum_type),
                                       OpOf(args.op), comm, stream);
  });
}

// Through scratch: [size, piece] of what every rank adds, then this rank's [piece] of sums.
Status NcclTransport::ReduceInPieces(NcclLane& lane, const ReduceScatterArgs& args) {
  MUSTER_ASSIGN_OR_RETURN(void* const scratch, lane.Scratch());
  const auto size = static_cast<std::size_t>(group_.size);
  const std::size_t fits = tables_->scratch_bytes / ElementSize(args.sum_type) / (size + 1);
  const std::size_t piece = std::max(kPieceAlignment, fits / kPieceAlignment * kPieceAlignment);
  for (std::size_t begin = 0; begin < args.count; begin += piece) {
    const std::size_t count = std::min(piece, args.count - begin);
    void* const sums = At(scratch, size * count, args.sum_type);
    MUSTER_RETURN_IF_ERROR(Convert(lane, {.from = At(args.full, begin, args.full_type),
                                          .from_type = args.full_type,
                                          .from_stride = static_cast<std::int64_t>(args.count),
                                          .to = scratch,
                                          .to_type = args.sum_type,
                                          .to_stride = static_cast<std::int64_t>(count),
                                          .rows = group_.size,
                                          .columns = static_cast<std::int64_t>(count)}));
    MUSTER_RETURN_IF_ERROR(lane.Call([&](NcclComm* comm, CudaStream stream) {
      return tables_->nccl.ReduceScatter(scratch, sums, count, TypeOf(args.sum_type), OpOf(args.op),
                                         comm, stream);
    }));
    MUSTER_RETURN_IF_ERROR(Convert(lane, {.from = sums,
                                          .from_type = args.sum_type,
                                          .to = At(args.shard, begin, args.shard_type),
                                          .to_type = args.shard_type,
                                          .rows = 1,
                                          .columns = static_cast<std::int64_t>(count),
                                          .add = args.accumulate}));
  }
  return OkStatus();
}

Status NcclTransport::Copy(NcclLane& lane, void* to, const void* from, std::size_t bytes) {
  if (to == from || bytes == 0) return OkStatus();
  const CudaApi& cuda = *tables_->cuda;
  return CudaStatus(cuda, cuda.Copy(to, from, bytes, lane.stream()), "copying");
}

Status NcclTransport::Convert(NcclLane& lane, const ConvertRows& rows) {
  const CudaApi& cuda = *tables_->cuda;
  return CudaStatus(cuda, cuda.Convert(rows, lane.stream()), "converting");
}

}  // namespace muster
