// NcclLane: one NCCL communicator with the stream that its operations run on.
//
// A group of ranks has two of them, one for gathers and one for reductions, so that these run at
// the same time: operations of one NCCL communicator follow one another. The lane keeps the
// operations under way in order, each with events before and after it, and says how far they are.
//
// Threads: Init, Begin, Call and Finish are the trainer's; Poll that of the gang that watches; Take
// the one that ends the gang. NCCL is called under a lock that no thread holds while waiting for a
// peer.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/control_pipe/progress_page.h"
#include "trainer/comm/operation_limit.h"
#include "trainer/comm/transport/nccl/cuda_events.h"
#include "trainer/comm/transport/nccl/nccl_api.h"
#include "trainer/comm/transport/nccl/nccl_fate.h"

namespace muster {

// What lanes and gangs call, and how long they wait.
struct NcclTables {
  NcclApi nccl;
  std::shared_ptr<const CudaApi> cuda;
  int device = 0;
  // From the moment at which the stream reaches an operation.
  std::shared_ptr<OperationLimit> limit =
      std::make_shared<OperationLimit>(std::chrono::minutes(10));
  // For an orderly leave, and for ncclCommAbort.
  Duration end_timeout = std::chrono::seconds(10);
  // For threads, when the process leaves.
  Duration leave_timeout = std::chrono::seconds(5);
  // Between looks while nothing is under way.
  Duration idle_pause = std::chrono::milliseconds(50);
  // A lane's memory for sums in another type, and the staging memory that is kept.
  std::size_t scratch_bytes = std::size_t{64} << 20;
  // Where sysfs and procfs are looked for.
  std::string root = "/";
};

// "enqueued 19, started 17, completed 16"
std::string CountsText(const CollectiveCell& counts);

struct NcclOperation {
  std::string name;                          // "all_gather 17 (4096 bytes)"
  Duration limit{};                          // that it was issued under
  std::shared_ptr<CollectiveCell> counters;  // of its group
  CudaEvents::Handle ready;                  // the trainer's stream has come to where it was issued
  CudaEvents::Handle started;                // the lane's stream has come to it
  CudaEvents::Handle done;
  std::optional<TimePoint> started_at;  // seen by Poll
  std::atomic<bool> completed = false;
};

class NcclLane {
 public:
  struct Place {
    std::string name;  // "gathers of generation 3"
    int rank = 0;
    int size = 1;
  };

  NcclLane(std::shared_ptr<const NcclTables> tables, std::shared_ptr<NcclFate> fate,
           std::shared_ptr<CollectiveCell> counters, std::shared_ptr<CudaEvents> events,
           Place place);
  ~NcclLane();
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  // Makes the stream and, for more than one rank, connects the peers that were given the same id.
  Status Init(const NcclUniqueId& id, Deadline deadline);

  // An operation that begins after all that the trainer's stream was given so far.
  Result<std::shared_ptr<NcclOperation>> Begin(std::string name);
  // One function of NCCL within the operation, until NCCL has taken it.
  Status Call(const std::function<NcclResult(NcclComm*, CudaStream)>& call);
  // The operation is as issued; from here on Poll follows it.
  Status Finish(const std::shared_ptr<NcclOperation>& operation);

  struct Look {
    Status error;       // of NCCL, of CUDA, or of an operation that takes too long
    bool busy = false;  // operations are under way
  };
  Look Poll(TimePoint now);
  bool idle() const;

  // The communicator, which the lane then has no more; waits for a call that is under way.
  // nullopt: that call does not end.
  std::optional<NcclComm*> Take(Deadline deadline);

  const Place& place() const { return place_; }
  CudaStream stream() const { return stream_; }
  // Memory of the device, the same for all operations, which follow one another: `scratch_bytes`
  // for sums, 256 bytes for what a barrier adds up.
  Result<void*> Scratch();
  Result<void*> Word();

 private:
  Status AwaitReady(Deadline deadline);
  // Called under calls_.
  Status ErrorOf(NcclResult result, const char* what);
  // Where the first operation that has not ended is. Called under queue_.
  Look LookAt(NcclOperation& operation, TimePoint now);
  Status AsyncError();
  Result<void*> AllocateOnce(void** memory, std::size_t bytes);

  const std::shared_ptr<const NcclTables> tables_;
  const std::shared_ptr<NcclFate> fate_;
  const std::shared_ptr<CollectiveCell> counters_;  // of the group, over its lanes
  const std::shared_ptr<CudaEvents> events_;
  const Place place_;
  CudaStream stream_ = nullptr;
  void* scratch_ = nullptr;
  void* word_ = nullptr;

  mutable std::mutex queue_;
  std::deque<std::shared_ptr<NcclOperation>> under_way_;

  std::timed_mutex calls_;  // around every call with comm_
  NcclComm* comm_ = nullptr;
  bool ready_ = false;  // the peers are connected
};

}  // namespace muster
