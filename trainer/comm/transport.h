// Transport: how the ranks of one group, which has met, run their collectives. RendezvousStore:
// where groups meet and get their transport.
//
// A Communicator is made of the two and is their only user. A transport lives for one generation of
// one group and is never formed again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/control_pipe/progress_page.h"
#include "trainer/comm/collectives.h"
#include "trainer/comm/operation_limit.h"

namespace muster {

// All that a rank needs to find its peers in one generation.
struct Rendezvous {
  Generation generation = 0;
  int rank = 0;
  int world_size = 1;
  bool spans_nodes = false;  // not all ranks are on this node
  std::string master_address;
  int master_port = 0;
  // What ranks show each other before they are heard; secret. Empty: no proof, as under
  // torchrun.
  std::string token;
  // The store's listening socket, where this process serves it (rank 0); invalid: connect only.
  UniqueFd listen_fd;
  // Serve the store although no socket was handed down (rank 0 under srun or mpirun).
  bool serve_store = false;
  // Address that peers reach this process at; empty: the one that leads to master_address.
  std::string bind_address;
};

// The ranks of one group in one generation. `name` distinguishes the groups of a generation and is
// the same on all its ranks.
struct Group {
  std::string name;
  Generation generation = 0;
  int rank = 0;
  int size = 1;
  bool spans_nodes = false;  // as in Rendezvous; of the world alone
};

// Adds the time of its life to the counts: made at the start of every Work::Wait.
class WaitTimer {
 public:
  explicit WaitTimer(CollectiveCell& counters) : counters_(counters), start_(SystemClock().Now()) {}
  ~WaitTimer() {
    const auto spent =
        std::chrono::duration_cast<std::chrono::nanoseconds>(SystemClock().Now() - start_);
    counters_.wait_nanoseconds.fetch_add(static_cast<std::uint64_t>(spent.count()),
                                         std::memory_order_relaxed);
  }
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;

 private:
  CollectiveCell& counters_;
  const TimePoint start_;
};

// An operation that never began, or is over.
class FinishedWork final : public Work {
 public:
  explicit FinishedWork(Status status) : status_(std::move(status)) {}
  Status Wait() override { return status_; }

 private:
  const Status status_;
};

// Threads: Abort may be called by any thread, everything else by the trainer's alone. The
// destructor leaves the group in order if nothing is under way, else it alarms the peers; where
// groups share one fate, the store's Close does so for all of them.
class Transport {
 public:
  virtual ~Transport() = default;

  // Before the first operation: proves that all ranks have met.
  virtual Status Begin(Deadline deadline) = 0;
  // Ends every operation under way and to come; returns at once. The first reason stays.
  virtual void Abort(const Status& reason) = 0;
  // Never null. A Work that is dropped without Wait waits in its destructor, so that no operation
  // outlives its buffers by accident.
  virtual std::unique_ptr<Work> Submit(const Operation& operation) = 0;
  // Communicator's, as the last two.
  virtual Result<std::unique_ptr<SharedRegion>> Share(RegionKind, std::size_t, int) {
    return Unimplemented("these ranks share no memory");
  }
  virtual bool shares_memory() const { return false; }
  virtual std::string Describe() const = 0;
  virtual std::string fallback() const { return ""; }
};

// Threads: Cancel may be called by any thread, everything else by the trainer's alone.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;

  // Gets ready for the groups of `rendezvous.generation`, until Close or the destructor. Close
  // waits for no peer.
  virtual Status Open(Rendezvous rendezvous, Deadline deadline) = 0;
  virtual void Close() = 0;
  // Waits for all ranks of the group. kCancelled after Cancel.
  virtual Result<std::shared_ptr<Transport>> Meet(const Group& group,
                                                  std::shared_ptr<CollectiveCell> counters,
                                                  Deadline deadline) = 0;
  // Ends an Open or Meet under way, those to come until Rearm and, where groups share one fate,
  // their transports, all with `reason`; returns at once.
  virtual void Cancel(const Status& reason) = 0;
  virtual void Rearm() = 0;
  // For the operations of all its groups.
  virtual OperationLimit& limit() = 0;
};

}  // namespace muster
