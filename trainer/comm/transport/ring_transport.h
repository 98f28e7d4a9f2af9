// RingTransport: a Transport made of a RingLink and the ring collectives.
//
// It owns the queue, the progress thread that runs operations in the order they were issued, and
// the error that ends them all. TCP and the in-process group differ in their link alone.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "trainer/comm/transport.h"
#include "trainer/comm/transport/ring_collectives.h"
#include "trainer/comm/transport/ring_link.h"

namespace muster {

struct RingTransportOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<const OperationLimit> limit;  // from the start of an operation
  std::string description;
  std::string fallback = {};  // why ranks of one host do not use its memory
};

class RingTransport final : public Transport {
 public:
  // `link` may be null for size 1.
  RingTransport(std::unique_ptr<RingLink> link, std::shared_ptr<CollectiveCell> counters,
                RingTransportOptions options);
  ~RingTransport() override;

  Status Begin(Deadline deadline) override;
  void Abort(const Status& reason) override { (void)Fail(reason); }
  std::unique_ptr<Work> Submit(const Operation& operation) override;
  std::string Describe() const override { return options_.description; }
  std::string fallback() const override {
    return options_.fallback.empty()
               ? ""
               : "of one host use sockets, which are slower than its memory: " + options_.fallback;
  }

 private:
  struct Queued;
  class QueuedWork;

  Status Execute(const Operation& operation, Deadline deadline);
  void RunQueue();
  void Finish(Queued& queued, Status status);
  // Ends the generation. Returns the reason that counts.
  Status Fail(const Status& reason);

  const std::unique_ptr<RingLink> link_;
  const std::shared_ptr<CollectiveCell> counters_;
  const RingTransportOptions options_;
  RingCollectives collectives_;

  std::mutex mutex_;
  std::condition_variable work_;
  Status status_;
  bool running_ = false;  // the progress thread is inside an operation
  bool stopping_ = false;
  std::deque<std::shared_ptr<Queued>> queue_;
  std::thread thread_;
};

}  // namespace muster
