// SharedTransport: a Transport made of a SharedLink and the collectives over shared memory.
//
// It has no progress thread. An operation is announced when it is issued, and done inside Wait by
// the caller; what needs no waiting, since all ranks have issued it and it works in place, is done
// as soon as the caller issues or waits for anything. So ranks that use two buffers in turn may be
// one operation apart without waiting for each other.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "trainer/comm/transport.h"
#include "trainer/comm/transport/shared/shared_collectives.h"
#include "trainer/comm/transport/shared/shared_control_block.h"
#include "trainer/comm/transport/shared/shared_link.h"

namespace muster {

struct SharedTransportOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<const OperationLimit> limit;  // of each wait
  std::string description;
};

class SharedTransport final : public Transport,
                              public std::enable_shared_from_this<SharedTransport> {
 public:
  // Collective. `link` may be null for size 1.
  static Result<std::shared_ptr<SharedTransport>> Start(std::shared_ptr<SharedLink> link,
                                                        std::shared_ptr<CollectiveCell> counters,
                                                        SharedTransportOptions options,
                                                        Deadline deadline);
  ~SharedTransport() override;

  Status Begin(Deadline deadline) override;
  void Abort(const Status& reason) override { (void)Fail(reason); }
  std::unique_ptr<Work> Submit(const Operation& operation) override;
  Result<std::unique_ptr<SharedRegion>> Share(RegionKind kind, std::size_t bytes,
                                              int kept) override;
  bool shares_memory() const override { return true; }
  std::string Describe() const override { return options_.description; }

 private:
  struct Pending;
  class PendingWork;

  SharedTransport(std::shared_ptr<SharedLink> link, std::shared_ptr<std::byte> memory,
                  std::shared_ptr<CollectiveCell> counters, SharedTransportOptions options);
  void Listen();
  Deadline OperationDeadline() const { return options_.limit->deadline(); }

  Status Issue(const std::shared_ptr<Pending>& pending);
  // Executes what needs no waiting.
  void RunReady();
  // Executes everything up to that operation.
  Status RunUntil(std::uint64_t number, Deadline deadline);
  Status ExecuteFront(Deadline deadline);
  Status Wait(Pending& pending, Deadline deadline);
  // Fails, at an operation: peers that are at it must not think it done.
  Status Refuse(const Status& reason);
  // Ends the generation. Returns the reason that counts.
  Status Fail(const Status& reason);

  const std::shared_ptr<CollectiveCell> counters_;
  const SharedTransportOptions options_;
  SharedControlBlock control_block_;
  SharedCollectives collectives_;
  const std::shared_ptr<SharedLink> link_;  // last: its news ends before the board does

  std::uint64_t issued_ = 0;
  std::uint64_t waited_ = 0;                    // operations whose Wait is over
  std::deque<std::shared_ptr<Pending>> queue_;  // issued, not executed
};

}  // namespace muster
