#include "trainer/comm/transport/shared/shared_transport.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/round_up.h"

namespace muster {
namespace {

constexpr std::size_t kPageBytes = 4096;

Result<SharedMemory> MapFor(SharedLink* link, std::size_t bytes, int kept, Deadline deadline) {
  if (link != nullptr) return link->Map(bytes, kept, deadline);
  MUSTER_ASSIGN_OR_RETURN(auto memory, AnonymousMemory(bytes));
  return SharedMemory{std::move(memory), nullptr};
}

class MappedRegion final : public SharedRegion {
 public:
  MappedRegion(SharedMemory memory, std::byte* data) : memory_(std::move(memory)), data_(data) {}
  void* data() const override { return data_; }
  int file() const override { return memory_.file != nullptr ? memory_.file->get() : -1; }

 private:
  const SharedMemory memory_;
  std::byte* const data_;
};

}  // namespace

struct SharedTransport::Pending {
  Operation operation;
  bool counts = true;  // false: the meeting's own
  std::uint64_t number = 0;
  bool executed = false;
  bool read_by_peers = false;     // valid once executed
  std::optional<Status> outcome;  // once it is waited for
};

// The transport may be gone when the caller waits: then the operation never ended.
class SharedTransport::PendingWork final : public Work {
 public:
  PendingWork(std::weak_ptr<SharedTransport> transport, std::shared_ptr<Pending> pending)
      : transport_(std::move(transport)), pending_(std::move(pending)) {}
  ~PendingWork() override { (void)Finish(); }
  Status Wait() override { return Finish(); }

 private:
  Status Finish() {
    if (pending_->outcome) return *pending_->outcome;
    const auto transport = transport_.lock();
    if (!transport) return Cancelled("the communicator was taken apart");
    const WaitTimer timer(*transport->counters_);
    Status status = transport->Wait(*pending_, transport->OperationDeadline());
    if (status.ok()) transport->counters_->completed.fetch_add(1, std::memory_order_relaxed);
    return status;
  }

  const std::weak_ptr<SharedTransport> transport_;
  const std::shared_ptr<Pending> pending_;
};

Result<std::shared_ptr<SharedTransport>> SharedTransport::Start(
    std::shared_ptr<SharedLink> link, std::shared_ptr<CollectiveCell> counters,
    SharedTransportOptions options, Deadline deadline) {
  MUSTER_ASSIGN_OR_RETURN(
      auto memory, MapFor(link.get(), SharedControlBlock::Bytes(options.size), -1, deadline));
  std::shared_ptr<SharedTransport> transport(new SharedTransport(
      std::move(link), std::move(memory.data), std::move(counters), std::move(options)));
  transport->Listen();
  return transport;
}

SharedTransport::SharedTransport(std::shared_ptr<SharedLink> link,
                                 std::shared_ptr<std::byte> memory,
                                 std::shared_ptr<CollectiveCell> counters,
                                 SharedTransportOptions options)
    : counters_(std::move(counters)),
      options_(std::move(options)),
      control_block_(std::move(memory), options_.rank, options_.size),
      collectives_(control_block_),
      link_(std::move(link)) {}

void SharedTransport::Listen() {
  if (!link_) return;
  link_->Listen([this](int peer, const Status& why) {
    if (why.ok()) {
      control_block_.Left(peer);
    } else {
      (void)control_block_.End(why);
    }
  });
}

// A rank that waited for all that it issued leaves in order; any other gives up.
SharedTransport::~SharedTransport() {
  if (waited_ != issued_) (void)Fail(Cancelled("the communicator was taken apart"));
}

Status SharedTransport::Begin(Deadline deadline) {
  const auto barrier = std::make_shared<Pending>();
  barrier->counts = false;
  MUSTER_RETURN_IF_ERROR(Issue(barrier));
  return Wait(*barrier, deadline);
}

Status SharedTransport::Refuse(const Status& reason) {
  control_block_.GiveUp();
  return Fail(reason);
}

Status SharedTransport::Fail(const Status& reason) {
  Status counts = control_block_.End(reason);
  if (link_) {
    link_->Alarm(counts);
    link_->Stop();
  }
  return counts;
}

std::unique_ptr<Work> SharedTransport::Submit(const Operation& operation) {
  auto pending = std::make_shared<Pending>();
  pending->operation = operation;
  if (Status issued = Issue(pending); !issued.ok()) pending->outcome = std::move(issued);
  return std::make_unique<PendingWork>(weak_from_this(), std::move(pending));
}

Status SharedTransport::Issue(const std::shared_ptr<Pending>& pending) {
  if (Status outcome = control_block_.outcome(); !outcome.ok()) return Refuse(outcome);
  const std::uint64_t number = issued_ + 1;
  if (number > SharedControlBlock::kNotices) {
    const std::uint64_t oldest = number - SharedControlBlock::kNotices;
    const Deadline deadline = OperationDeadline();
    MUSTER_RETURN_IF_ERROR(RunUntil(oldest, deadline));
    Status read = control_block_.Await(&SharedLine::finished, oldest, deadline);
    if (!read.ok()) return Refuse(read);
  }
  issued_ = number;
  pending->number = number;
  queue_.push_back(pending);
  control_block_.Notice(options_.rank, number) = collectives_.NoticeOf(pending->operation);
  control_block_.Advance(&SharedLine::issued, number);
  RunReady();
  return OkStatus();
}

void SharedTransport::RunReady() {
  while (!queue_.empty()) {
    const std::uint64_t number = queue_.front()->number;
    if (!control_block_.Reached(&SharedLine::issued, number) || !collectives_.IsInPlace(number))
      return;
    // Who waits for the operation learns of an error.
    if (!ExecuteFront(OperationDeadline()).ok()) return;
  }
}

Status SharedTransport::ExecuteFront(Deadline deadline) {
  Pending& front = *queue_.front();
  if (front.counts) counters_->started.fetch_add(1, std::memory_order_relaxed);
  std::uint64_t bytes = 0;
  Status status = control_block_.Await(&SharedLine::issued, front.number, deadline);
  if (status.ok()) status = collectives_.CheckAgreement(front.number);
  if (status.ok()) {
    status = collectives_.Execute(front.operation, front.number, deadline, &bytes);
  }
  if (!status.ok()) return Refuse(status);
  front.executed = true;
  front.read_by_peers = collectives_.IsReadByPeers(front.number);
  control_block_.Advance(&SharedLine::finished, front.number);
  counters_->bytes.fetch_add(bytes, std::memory_order_relaxed);
  queue_.pop_front();
  return OkStatus();
}

Status SharedTransport::RunUntil(std::uint64_t number, Deadline deadline) {
  while (!queue_.empty() && queue_.front()->number <= number) {
    if (Status outcome = control_block_.outcome(); !outcome.ok()) return Refuse(outcome);
    MUSTER_RETURN_IF_ERROR(ExecuteFront(deadline));
  }
  return OkStatus();
}

Status SharedTransport::Wait(Pending& pending, Deadline deadline) {
  Status status = RunUntil(pending.number, deadline);
  // The operation itself may have ended well before something else failed.
  if (pending.executed) status = OkStatus();
  if (pending.executed && pending.read_by_peers) {
    status = control_block_.Await(&SharedLine::finished, pending.number, deadline);
    if (!status.ok()) status = Refuse(status);
  }
  pending.outcome = status;
  if (status.ok()) {
    ++waited_;
    RunReady();
  }
  return status;
}

Result<std::unique_ptr<SharedRegion>> SharedTransport::Share(RegionKind kind, std::size_t bytes,
                                                             int kept) {
  MUSTER_RETURN_IF_ERROR(control_block_.outcome());
  const std::size_t stride = RoundUp(std::max<std::size_t>(bytes, 1), kPageBytes);
  const bool per_rank = kind == RegionKind::kPerRank;
  const std::size_t total = per_rank ? stride * static_cast<std::size_t>(options_.size) : stride;
  auto memory = MapFor(link_.get(), total, per_rank ? -1 : kept, OperationDeadline());
  if (!memory.ok()) return Fail(memory.status());
  collectives_.AddRegion(kind, memory->data, bytes, stride);
  std::byte* data = memory->data.get();
  if (per_rank) data += stride * static_cast<std::size_t>(options_.rank);
  return std::unique_ptr<SharedRegion>(std::make_unique<MappedRegion>(*memory, data));
}

}  // namespace muster
