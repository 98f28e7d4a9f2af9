// RingCommunicator: a Communicator made of a RingConnector and the ring collectives.
//
// It owns the queue, the progress thread that runs operations in the order they were issued, and
// the error that ends them all. Gloo and the in-process group differ in their connector alone.
//
// Threads: as communicator.h says. A Work that is dropped without Wait waits in its destructor, so
// that no operation outlives its buffers by accident.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "trainer/distributed/communicator.h"
#include "trainer/distributed/ring_collectives.h"
#include "trainer/distributed/ring_link.h"

namespace muster {

class RingCommunicator final : public Communicator {
 public:
  RingCommunicator(std::unique_ptr<RingConnector> connector, Duration operation_timeout);
  ~RingCommunicator() override;

  Status Form(Rendezvous rendezvous, Deadline deadline) override;
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void Abort(const Status& reason) override;
  Result<std::unique_ptr<SharedRegion>> Share(RegionKind kind, std::size_t bytes) override;
  Result<std::unique_ptr<Communicator>> Split(const std::string& name,
                                              const std::vector<int>& members,
                                              Deadline deadline) override;

  std::unique_ptr<muster::Work> AllGather(const void* shard, void* full, std::size_t count,
                                          ElementType type) override;
  std::unique_ptr<muster::Work> ReduceScatter(const ReduceScatterArgs& args) override;
  std::unique_ptr<muster::Work> AllReduce(void* data, std::size_t count, ElementType type,
                                          ReduceOp op) override;
  std::unique_ptr<muster::Work> Broadcast(void* data, std::size_t bytes, int root) override;
  Status Barrier() override;

  CommunicatorCounters counters() const override;

 private:
  // What runs on the progress thread; `bytes` is what this rank sends.
  using Body = std::function<Status(RingCollectives&, Deadline)>;
  struct Operation;
  class OperationWork;

  std::unique_ptr<muster::Work> Submit(std::size_t bytes, Body body);
  void RunQueue();
  void Finish(Operation& operation, Status status);
  // Ends the generation: the first reason stays. Returns the reason that counts.
  Status Fail(const Status& reason);
  void Disband();

  const std::unique_ptr<RingConnector> connector_;
  const Duration operation_timeout_;
  int rank_ = 0;
  int size_ = 1;

  mutable std::mutex mutex_;
  std::condition_variable work_;
  Status status_;                  // OK while formed
  std::optional<Status> aborted_;  // by Abort, since the last Form began
  bool running_ = false;           // the progress thread is inside an operation
  std::deque<std::shared_ptr<Operation>> queue_;
  std::shared_ptr<RingLink> link_;  // null: not formed, or size 1
  bool stopping_ = false;
  std::unique_ptr<RingCollectives> collectives_;
  std::thread thread_;

  std::atomic<std::uint64_t> enqueued_ = 0;
  std::atomic<std::uint64_t> completed_ = 0;
  std::atomic<std::uint64_t> bytes_sent_ = 0;
};

}  // namespace muster
