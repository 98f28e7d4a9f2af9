#include "trainer/distributed/ring_communicator.h"

#include <string>
#include <utility>

namespace muster {

struct RingCommunicator::Operation {
  Body body;
  std::size_t bytes = 0;
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  Status status;

  Status Wait() {
    std::unique_lock lock(mutex);
    done_changed.wait(lock, [&] { return done; });
    return status;
  }
};

class RingCommunicator::OperationWork final : public muster::Work {
 public:
  explicit OperationWork(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  ~OperationWork() override { (void)operation_->Wait(); }
  Status Wait() override { return operation_->Wait(); }

 private:
  const std::shared_ptr<Operation> operation_;
};

RingCommunicator::RingCommunicator(std::unique_ptr<RingConnector> connector,
                                   Duration operation_timeout)
    : connector_(std::move(connector)),
      operation_timeout_(operation_timeout),
      status_(FailedPrecondition("the communicator has not been formed")) {}

RingCommunicator::~RingCommunicator() { Disband(); }

// Ends the progress thread. An idle, healthy link leaves in order; anything else is cut.
void RingCommunicator::Disband() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if ((running_ || !queue_.empty()) && link_) link_->Close();
    if (status_.ok()) status_ = Cancelled("the communicator was taken apart");
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
  std::lock_guard lock(mutex_);
  collectives_.reset();
  link_.reset();
  stopping_ = false;
}

Status RingCommunicator::Form(Rendezvous rendezvous, Deadline deadline) {
  Disband();
  const int rank = rendezvous.rank;
  const int size = rendezvous.world_size;
  if (size < 1 || rank < 0 || rank >= size) {
    return InvalidArgument("rank " + std::to_string(rank) + " of " + std::to_string(size) +
                           " is not a place in a gang");
  }
  connector_->Rearm();
  {
    std::lock_guard lock(mutex_);
    aborted_.reset();
  }
  std::shared_ptr<RingLink> link;
  if (size > 1) {
    auto connected = connector_->Connect(std::move(rendezvous), deadline);
    std::lock_guard lock(mutex_);
    if (aborted_) return *aborted_;
    if (!connected.ok()) return connected.status();
    link = *std::move(connected);
  }
  {
    std::lock_guard lock(mutex_);
    if (aborted_) return *aborted_;
    rank_ = rank;
    size_ = size;
    link_ = link;
    status_ = OkStatus();
    collectives_ = std::make_unique<RingCollectives>(link.get(), rank, size);
  }
  // Proves that all ranks have met, not only neighbours.
  if (Status met = collectives_->Barrier(deadline); !met.ok()) {
    if (link) link->Drop();
    return Fail(met).WithContext("forming a gang of " + std::to_string(size));
  }
  connector_->Met();
  if (size > 1) thread_ = std::thread([this] { RunQueue(); });
  return OkStatus();
}

Status RingCommunicator::Fail(const Status& reason) {
  std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = reason;
  if (link_) link_->Close();
  return status_;
}

void RingCommunicator::Abort(const Status& reason) {
  {
    std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = reason;
  }
  connector_->Cancel();
  (void)Fail(reason);
  work_.notify_all();
}

void RingCommunicator::Finish(Operation& operation, Status status) {
  if (status.ok()) {
    completed_.fetch_add(1, std::memory_order_relaxed);
    bytes_sent_.fetch_add(operation.bytes, std::memory_order_relaxed);
  }
  {
    std::lock_guard lock(operation.mutex);
    operation.status = std::move(status);
    operation.done = true;
  }
  operation.done_changed.notify_all();
}

void RingCommunicator::RunQueue() {
  for (;;) {
    std::shared_ptr<Operation> operation;
    Status status;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      operation = std::move(queue_.front());
      queue_.pop_front();
      status = status_;
      running_ = status.ok();
    }
    if (status.ok()) {
      status = operation->body(*collectives_, Deadline::After(operation_timeout_));
      if (!status.ok()) {
        status = Fail(status);
        // The caller may free its buffers as soon as the operation is finished.
        link_->Drop();
      }
      std::lock_guard lock(mutex_);
      running_ = false;
    }
    Finish(*operation, std::move(status));
  }
}

std::unique_ptr<Work> RingCommunicator::Submit(std::size_t bytes, Body body) {
  auto operation = std::make_shared<Operation>();
  operation->bytes = bytes;
  enqueued_.fetch_add(1, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  if (!status_.ok()) {
    Status status = status_;
    lock.unlock();
    Finish(*operation, std::move(status));
  } else if (size_ == 1) {
    lock.unlock();
    Finish(*operation, body(*collectives_, Deadline::After(operation_timeout_)));
  } else {
    operation->body = std::move(body);
    queue_.push_back(operation);
    lock.unlock();
    work_.notify_one();
  }
  return std::make_unique<OperationWork>(std::move(operation));
}

std::unique_ptr<Work> RingCommunicator::AllGather(const void* shard, void* full, std::size_t count,
                                                  ElementType type) {
  const std::size_t bytes = count * ElementSize(type);
  return Submit(bytes * static_cast<std::size_t>(size_ - 1),
                [=](RingCollectives& ring, Deadline deadline) {
                  return ring.AllGather(shard, full, bytes, deadline);
                });
}

std::unique_ptr<Work> RingCommunicator::ReduceScatter(const ReduceScatterArgs& args) {
  return Submit(args.count * ElementSize(args.full_type) * static_cast<std::size_t>(size_ - 1),
                [=](RingCollectives& ring, Deadline deadline) {
                  return ring.ReduceScatter(args.full, args.shard, args.count, args.full_type,
                                            args.op, deadline);
                });
}

Result<std::unique_ptr<SharedRegion>> RingCommunicator::Share(RegionKind, std::size_t) {
  return Unimplemented("ranks that talk over sockets share no memory");
}

Result<std::unique_ptr<Communicator>> RingCommunicator::Split(const std::string&,
                                                              const std::vector<int>&, Deadline) {
  return Unimplemented("groups of ranks");
}

std::unique_ptr<Work> RingCommunicator::AllReduce(void* data, std::size_t count, ElementType type,
                                                  ReduceOp op) {
  const std::size_t size = static_cast<std::size_t>(size_);
  return Submit(2 * count * ElementSize(type) * (size - 1) / size,
                [=](RingCollectives& ring, Deadline deadline) {
                  return ring.AllReduce(data, count, type, op, deadline);
                });
}

std::unique_ptr<Work> RingCommunicator::Broadcast(void* data, std::size_t bytes, int root) {
  if (root < 0 || root >= size_) {
    auto operation = std::make_shared<Operation>();
    Finish(*operation, InvalidArgument("broadcast root " + std::to_string(root) +
                                       " is not a rank of a gang of " + std::to_string(size_)));
    return std::make_unique<OperationWork>(std::move(operation));
  }
  return Submit((rank_ + 1) % size_ == root ? 0 : bytes,
                [=](RingCollectives& ring, Deadline deadline) {
                  return ring.Broadcast(data, bytes, root, deadline);
                });
}

Status RingCommunicator::Barrier() {
  return Submit(1, [](RingCollectives& ring, Deadline deadline) { return ring.Barrier(deadline); })
      ->Wait();
}

CommunicatorCounters RingCommunicator::counters() const {
  return {enqueued_.load(std::memory_order_relaxed), completed_.load(std::memory_order_relaxed),
          bytes_sent_.load(std::memory_order_relaxed)};
}

}  // namespace muster
