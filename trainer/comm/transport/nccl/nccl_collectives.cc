// The collectives of NcclCommunicator; its life is in nccl_communicator.cc.
#include <algorithm>
#include <cstring>
#include <utility>

#include "trainer/comm/transport/nccl/nccl_communicator.h"

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

std::byte* At(void* data, std::size_t elements, ElementType type) {
  return static_cast<std::byte*>(data) + elements * ElementSize(type);
}

// Elements: pieces of sums begin where vector loads may.
constexpr std::size_t kPieceAlignment = 64;

}  // namespace

class NcclCommunicator::StagedWork final : public muster::Work {
 public:
  StagedWork(NcclCommunicator& communicator, std::shared_ptr<NcclOperation> operation,
             std::unique_ptr<HostStaging::Piece> staging, HostMemory memory)
      : communicator_(communicator),
        operation_(std::move(operation)),
        staging_(std::move(staging)),
        memory_(memory) {}
  ~StagedWork() override {
    if (operation_ != nullptr) (void)Wait();
  }
  Status Wait() override {
    const Status status = communicator_.AwaitEnd(*operation_);
    operation_.reset();
    if (status.ok()) {
      std::memcpy(memory_.data, staging_->host(), memory_.bytes);
      communicator_.staging_.GiveBack(std::move(staging_));
    } else {
      staging_->Leak();
    }
    return status;
  }

 private:
  NcclCommunicator& communicator_;
  std::shared_ptr<NcclOperation> operation_;
  std::unique_ptr<HostStaging::Piece> staging_;
  const HostMemory memory_;
};

class NcclCommunicator::OperationWork final : public muster::Work {
 public:
  OperationWork(std::shared_ptr<NcclGang> gang, std::shared_ptr<NcclOperation> operation)
      : gang_(std::move(gang)), operation_(std::move(operation)) {}
  explicit OperationWork(Status status) : status_(std::move(status)) {}
  // Dropped without Wait: what the trainer does next with the buffers still comes after it.
  ~OperationWork() override {
    if (operation_ != nullptr) (void)Wait();
  }
  Status Wait() override {
    if (operation_ == nullptr) return status_;
    status_ = gang_->OrderAfter(*operation_);
    operation_.reset();
    return status_;
  }

 private:
  const std::shared_ptr<NcclGang> gang_;
  std::shared_ptr<NcclOperation> operation_;  // null: there is nothing to wait for
  Status status_;
};

Result<std::shared_ptr<NcclOperation>> NcclCommunicator::Issue(NcclLane* lane, CollectiveOp op,
                                                               std::size_t bytes,
                                                               const Body& body) {
  if (gang_ == nullptr) return FailedPrecondition("the communicator has not been formed");
  MUSTER_RETURN_IF_ERROR(gang_->status());
  const std::uint64_t number = progress_->enqueued.fetch_add(1) + 1;
  if (page_) page_->CountOperation(op);
  const std::string full_name = std::string(CollectiveOpName(op)) + " " + std::to_string(number) +
                                " (" + std::to_string(bytes) + " bytes)";
  Result<std::shared_ptr<NcclOperation>> operation = lane->Begin(full_name);
  Status status = operation.ok() ? body(*lane) : operation.status();
  if (status.ok()) status = lane->Finish(*operation);
  if (!status.ok()) {
    gang_->Fail(status.WithContext(full_name));
    return gang_->status();
  }
  progress_->bytes.fetch_add(bytes);
  gang_->Wake();
  return operation;
}

std::unique_ptr<muster::Work> NcclCommunicator::Failed(Status status) {
  return std::make_unique<OperationWork>(std::move(status));
}

std::unique_ptr<muster::Work> NcclCommunicator::Submit(NcclLane* lane, CollectiveOp op,
                                                       std::size_t bytes, const Body& body) {
  auto operation = Issue(lane, op, bytes, body);
  if (!operation.ok()) return Failed(operation.status());
  return std::make_unique<OperationWork>(gang_, *std::move(operation));
}

std::unique_ptr<muster::Work> NcclCommunicator::SubmitStaged(NcclLane* lane, CollectiveOp op,
                                                             std::size_t sent,
                                                             const HostMemory& memory,
                                                             const StagedCall& call) {
  if (gang_ == nullptr) return Failed(FailedPrecondition("the communicator has not been formed"));
  if (const Status status = gang_->status(); !status.ok()) return Failed(status);
  if (size_ == 1 || memory.bytes == 0) {
    if (memory.in_bytes > 0) std::memmove(memory.data, memory.in, memory.in_bytes);
    return Failed(OkStatus());
  }
  auto staging = staging_.Take(std::max(memory.bytes, memory.in_offset + memory.in_bytes));
  if (!staging.ok()) return Failed(staging.status());
  std::byte* const device = (*staging)->device();
  std::byte* const host = (*staging)->host();
  std::memcpy(host + memory.in_offset, memory.in, memory.in_bytes);
  auto operation = Issue(lane, op, sent, [&](NcclLane& on) {
    MUSTER_RETURN_IF_ERROR(
        Copy(on, device + memory.in_offset, host + memory.in_offset, memory.in_bytes));
    MUSTER_RETURN_IF_ERROR(
        on.Call([&](NcclComm* comm, CudaStream stream) { return call(device, comm, stream); }));
    return Copy(on, host, device, memory.bytes);
  });
  if (!operation.ok()) {
    (*staging)->Leak();
    return Failed(operation.status());
  }
  return std::make_unique<StagedWork>(*this, *std::move(operation), *std::move(staging), memory);
}

Status NcclCommunicator::AwaitEnd(const NcclOperation& operation) {
  const TimePoint begin = SystemClock().Now();
  // The monitor gives up an operation that runs too long; this is for one that never begins.
  if (!gang_->Await(operation, Deadline::After(2 * operation.limit))) {
    gang_->Fail(
        DeadlineExceeded(operation.name + " was not reached in time; " + CountsText(*progress_)));
  }
  const Duration waited = SystemClock().Now() - begin;
  progress_->wait_nanoseconds += static_cast<std::uint64_t>(waited.count());
  return operation.completed ? OkStatus() : gang_->status();
}

Status NcclCommunicator::Copy(NcclLane& lane, void* to, const void* from, std::size_t bytes) {
  if (to == from || bytes == 0) return OkStatus();
  const CudaApi& cuda = *tables_->cuda;
  return CudaStatus(cuda, cuda.Copy(to, from, bytes, lane.stream()), "copying");
}

Status NcclCommunicator::Convert(NcclLane& lane, const ConvertRows& rows) {
  const CudaApi& cuda = *tables_->cuda;
  return CudaStatus(cuda, cuda.Convert(rows, lane.stream()), "converting");
}

std::unique_ptr<muster::Work> NcclCommunicator::AllGather(const void* shard, void* full,
                                                          std::size_t count, ElementType type) {
  const std::size_t bytes = count * ElementSize(type);
  const std::size_t sent = bytes * static_cast<std::size_t>(size_ - 1);
  if (IsHostMemory(full)) {
    const std::size_t place = bytes * static_cast<std::size_t>(rank_);
    return SubmitStaged(gathers_, CollectiveOp::kAllGather, sent,
                        {full, bytes * static_cast<std::size_t>(size_), shard, bytes, place},
                        [&](void* device, NcclComm* comm, CudaStream stream) {
                          return tables_->nccl.AllGather(static_cast<std::byte*>(device) + place,
                                                         device, count, TypeOf(type), comm, stream);
                        });
  }
  return Submit(gathers_, CollectiveOp::kAllGather, sent, [=, this](NcclLane& lane) {
    if (size_ == 1) return Copy(lane, full, shard, bytes);
    return lane.Call([&](NcclComm* comm, CudaStream stream) {
      return tables_->nccl.AllGather(shard, full, count, TypeOf(type), comm, stream);
    });
  });
}

std::unique_ptr<muster::Work> NcclCommunicator::ReduceScatter(const ReduceScatterArgs& args) {
  const std::size_t bytes =
      args.count * ElementSize(args.sum_type) * static_cast<std::size_t>(size_ - 1);
  return Submit(reductions_, CollectiveOp::kReduceScatter, bytes, [=, this](NcclLane& lane) {
    const bool one_type = args.full_type == args.sum_type && args.sum_type == args.shard_type;
    if (size_ == 1) {
      if (one_type && !args.accumulate) {
        return Copy(lane, args.shard, args.full, args.count * ElementSize(args.full_type));
      }
      const auto count = static_cast<std::int64_t>(args.count);
      return Convert(lane, {args.full, args.full_type, count, args.shard, args.shard_type, count, 1,
                            count, args.accumulate});
    }
    if (!one_type || args.accumulate) return ReduceInPieces(lane, args);
    return lane.Call([&](NcclComm* comm, CudaStream stream) {
      return tables_->nccl.ReduceScatter(args.full, args.shard, args.count, TypeOf(args.sum_type),
                                         OpOf(args.op), comm, stream);
    });
  });
}

// Through scratch: [size, piece] of what every rank adds, then this rank's [piece] of sums.
Status NcclCommunicator::ReduceInPieces(NcclLane& lane, const ReduceScatterArgs& args) {
  MUSTER_ASSIGN_OR_RETURN(void* const scratch, lane.Scratch());
  const auto size = static_cast<std::size_t>(size_);
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
                                          .rows = size_,
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

std::unique_ptr<muster::Work> NcclCommunicator::AllReduce(void* data, std::size_t count,
                                                          ElementType type, ReduceOp op) {
  const auto size = static_cast<std::size_t>(size_);
  const std::size_t bytes = 2 * count * ElementSize(type) * (size - 1) / size;
  if (IsHostMemory(data)) {
    const std::size_t whole = count * ElementSize(type);
    return SubmitStaged(reductions_, CollectiveOp::kAllReduce, bytes, {data, whole, data, whole, 0},
                        [&](void* device, NcclComm* comm, CudaStream stream) {
                          return tables_->nccl.AllReduce(device, device, count, TypeOf(type),
                                                         OpOf(op), comm, stream);
                        });
  }
  return Submit(reductions_, CollectiveOp::kAllReduce, bytes, [=, this](NcclLane& lane) {
    if (size_ == 1) return OkStatus();
    return lane.Call([&](NcclComm* comm, CudaStream stream) {
      return tables_->nccl.AllReduce(data, data, count, TypeOf(type), OpOf(op), comm, stream);
    });
  });
}

std::unique_ptr<muster::Work> NcclCommunicator::Broadcast(void* data, std::size_t bytes, int root) {
  if (root < 0 || root >= size_) {
    return Failed(InvalidArgument("broadcast root " + std::to_string(root) +
                                  " is not a rank of a gang of " + std::to_string(size_)));
  }
  const std::size_t sent = (rank_ + 1) % size_ == root ? 0 : bytes;
  if (IsHostMemory(data)) {
    return SubmitStaged(gathers_, CollectiveOp::kBroadcast, sent, {data, bytes, data, bytes, 0},
                        [&](void* device, NcclComm* comm, CudaStream stream) {
                          return tables_->nccl.Broadcast(device, device, bytes, NcclType::kUint8,
                                                         root, comm, stream);
                        });
  }
  return Submit(gathers_, CollectiveOp::kBroadcast, sent, [=, this](NcclLane& lane) {
    if (size_ == 1) return OkStatus();
    return lane.Call([&](NcclComm* comm, CudaStream stream) {
      return tables_->nccl.Broadcast(data, data, bytes, NcclType::kUint8, root, comm, stream);
    });
  });
}

std::unique_ptr<muster::Work> NcclCommunicator::RingSendRecv(const void* send, void* receive,
                                                             std::size_t bytes) {
  const auto shift = [this, bytes](const void* from, void* to, NcclComm* comm, CudaStream stream) {
    const NcclApi& nccl = tables_->nccl;
    const int next = (rank_ + 1) % size_;
    const int previous = (rank_ + size_ - 1) % size_;
    NcclResult result = nccl.GroupStart();
    if (result != NcclResult::kSuccess) return result;
    const NcclResult sent = nccl.Send(from, bytes, NcclType::kUint8, next, comm, stream);
    const NcclResult received = nccl.Recv(to, bytes, NcclType::kUint8, previous, comm, stream);
    result = nccl.GroupEnd();
    const auto failed = [](NcclResult of) {
      return of != NcclResult::kSuccess && of != NcclResult::kInProgress;
    };
    if (failed(sent)) return sent;
    return failed(received) ? received : result;
  };
  if (IsHostMemory(receive)) {
    // What is sent lies behind what is received.
    return SubmitStaged(
        gathers_, CollectiveOp::kRingSendRecv, bytes, {receive, bytes, send, bytes, bytes},
        [&](void* device, NcclComm* comm, CudaStream stream) {
          return shift(static_cast<std::byte*>(device) + bytes, device, comm, stream);
        });
  }
  return Submit(
      gathers_, CollectiveOp::kRingSendRecv, size_ == 1 ? 0 : bytes, [=, this](NcclLane& lane) {
        if (size_ == 1) return Copy(lane, receive, send, bytes);
        return lane.Call(
            [&](NcclComm* comm, CudaStream stream) { return shift(send, receive, comm, stream); });
      });
}

Status NcclCommunicator::Barrier() {
  auto operation =
      Issue(reductions_, CollectiveOp::kBarrier, sizeof(float), [this](NcclLane& lane) {
        if (size_ == 1) return OkStatus();
        MUSTER_ASSIGN_OR_RETURN(void* const word, lane.Word());
        return lane.Call([&](NcclComm* comm, CudaStream stream) {
          return tables_->nccl.AllReduce(word, word, 1, NcclType::kFloat32, NcclOp::kMax, comm,
                                         stream);
        });
      });
  return operation.ok() ? AwaitEnd(**operation) : operation.status();
}

CommunicatorCounters NcclCommunicator::counters() const {
  std::lock_guard lock(mutex_);
  CommunicatorCounters counters;
  counters.enqueued = progress_->enqueued;
  counters.started = progress_->started;
  counters.completed = progress_->completed;
  counters.bytes = progress_->bytes;
  counters.wait_nanoseconds = progress_->wait_nanoseconds;
  return counters;
}

}  // namespace muster
