#include "trainer/comm/transport/ring_transport.h"

#include <utility>

namespace muster {

struct RingTransport::Queued {
  Operation operation;
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

class RingTransport::QueuedWork final : public Work {
 public:
  QueuedWork(std::shared_ptr<Queued> queued, std::shared_ptr<CollectiveCell> counters)
      : queued_(std::move(queued)), counters_(std::move(counters)) {}
  ~QueuedWork() override { (void)queued_->Wait(); }
  Status Wait() override {
    const WaitTimer timer(*counters_);
    return queued_->Wait();
  }

 private:
  const std::shared_ptr<Queued> queued_;
  const std::shared_ptr<CollectiveCell> counters_;
};

RingTransport::RingTransport(std::unique_ptr<RingLink> link,
                             std::shared_ptr<CollectiveCell> counters, RingTransportOptions options)
    : link_(std::move(link)),
      counters_(std::move(counters)),
      options_(std::move(options)),
      collectives_(link_.get(), options_.rank, options_.size) {}

// An idle, healthy link leaves in order; anything else is cut.
RingTransport::~RingTransport() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if ((running_ || !queue_.empty()) && link_) link_->Close();
    if (status_.ok()) status_ = Cancelled("the communicator was taken apart");
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status RingTransport::Begin(Deadline deadline) {
  if (!link_) return OkStatus();
  if (Status met = collectives_.Barrier(deadline); !met.ok()) {
    link_->Drop();
    return Fail(met);
  }
  thread_ = std::thread([this] { RunQueue(); });
  return OkStatus();
}

Status RingTransport::Fail(const Status& reason) {
  std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = reason;
  if (link_) link_->Close();
  return status_;
}

void RingTransport::Finish(Queued& queued, Status status) {
  if (status.ok()) {
    counters_->completed.fetch_add(1, std::memory_order_relaxed);
    counters_->bytes.fetch_add(BytesSent(queued.operation, options_.rank, options_.size),
                               std::memory_order_relaxed);
  }
  {
    std::lock_guard lock(queued.mutex);
    queued.status = std::move(status);
    queued.done = true;
  }
  queued.done_changed.notify_all();
}

void RingTransport::RunQueue() {
  for (;;) {
    std::shared_ptr<Queued> queued;
    Status status;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      queued = std::move(queue_.front());
      queue_.pop_front();
      status = status_;
      running_ = status.ok();
    }
    if (status.ok()) {
      status = Execute(queued->operation, options_.limit->deadline());
      if (!status.ok()) {
        status = Fail(status);
        // The caller may free its buffers as soon as the operation is finished.
        link_->Drop();
      }
      std::lock_guard lock(mutex_);
      running_ = false;
    }
    Finish(*queued, std::move(status));
  }
}

std::unique_ptr<Work> RingTransport::Submit(const Operation& operation) {
  auto queued = std::make_shared<Queued>();
  queued->operation = operation;
  std::unique_lock lock(mutex_);
  if (!status_.ok() || !link_) {
    Status status = status_;
    lock.unlock();
    if (status.ok()) status = Execute(operation, options_.limit->deadline());
    Finish(*queued, std::move(status));
  } else {
    queue_.push_back(queued);
    lock.unlock();
    work_.notify_one();
  }
  return std::make_unique<QueuedWork>(std::move(queued), counters_);
}

Status RingTransport::Execute(const Operation& o, Deadline deadline) {
  counters_->started.fetch_add(1, std::memory_order_relaxed);
  switch (o.kind) {
    case CollectiveOp::kAllGather:
      return collectives_.AllGather(o.source, o.data, o.count * ElementSize(o.type), deadline);
    case CollectiveOp::kReduceScatter:
      return collectives_.ReduceScatter(o.reduce_scatter, deadline);
    case CollectiveOp::kAllReduce:
      return collectives_.AllReduce(o.data, o.count, o.type, o.op, deadline);
    case CollectiveOp::kBroadcast: return collectives_.Broadcast(o.data, o.count, o.root, deadline);
    case CollectiveOp::kRingSendRecv:
      return collectives_.RingSendRecv(o.source, o.data, o.count, deadline);
    case CollectiveOp::kAllToAll: return collectives_.AllToAll(o, deadline);
    case CollectiveOp::kBarrier: return collectives_.Barrier(deadline);
  }
  return Internal("an operation of no kind");
}

}  // namespace muster
