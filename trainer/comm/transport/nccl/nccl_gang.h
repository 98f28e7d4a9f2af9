// NcclGang: what the groups of one generation on GPUs have in common in this process: their NCCL
// communicators, and the end of these.
//
// The lanes of all groups share one fate: the first error in any of them, or the abort of any
// group, ends all of them, because NCCL's communicators must be aborted together: one that is left
// may wait for a kernel of another. So the lanes of a group that was destroyed stay until the gang
// ends, and until then NCCL may still write to the buffers of what was ended.
//
// NCCL calls no one back: errors of peers and the ends of operations must be asked for. A thread of
// the gang's own does so, often while an operation is under way, now and then otherwise; it stops
// when the gang has failed. What ends the lanes is a thread too, which no other waits for without a
// deadline: ncclCommAbort waits for a kernel that a broken GPU never ends.
//
// Threads: Fail may be called by any thread, everything else by the trainer's alone. Owned by the
// rendezvous, the transports, their Work objects and the threads.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "trainer/comm/rendezvous/store_rendezvous.h"
#include "trainer/comm/transport/nccl/apart_threads.h"
#include "trainer/comm/transport/nccl/host_staging.h"
#include "trainer/comm/transport/nccl/nccl_lane.h"

namespace muster {

class NcclGang final : public std::enable_shared_from_this<NcclGang> {
 public:
  // `threads` outlives Leave.
  static std::shared_ptr<NcclGang> Make(std::shared_ptr<const NcclTables> tables,
                                        ApartThreads* threads);

  Status status() const { return fate_->status(); }
  // Where the ranks leave each other ids; cancelled when the gang fails.
  StoreMeeting& meeting() { return meeting_; }
  HostStaging& staging() { return staging_; }
  // Ends every operation under way and to come with `reason`, unless it has failed before.
  void Fail(const Status& reason);

  // Collective over the ranks that were given the same id. An error has failed the gang.
  Result<NcclLane*> OpenLane(NcclLane::Place place, const NcclUniqueId& id,
                             std::shared_ptr<CollectiveCell> counters, Deadline deadline);
  // There is work: the lanes are looked at soon.
  void Wake();
  // The trainer's stream waits for the operation.
  Status OrderAfter(const NcclOperation& operation);
  // The caller waits until it has ended on the GPU.
  Status AwaitEnd(const NcclOperation& operation);

  // Begins to end the gang: in order if nothing is wrong and nothing under way, else by abort.
  void Leave();
  // Until Leave, or the abort before it, is done. False: it is not in time.
  bool AwaitLeft(Deadline deadline);

 private:
  NcclGang(std::shared_ptr<const NcclTables> tables, ApartThreads* threads);

  void Watch();
  // True while something is under way whose end is awaited.
  bool Poll(TimePoint now);
  std::vector<NcclLane*> Lanes() const;
  void AbortLanes();
  void LeaveLanes();
  bool FinalizeAll(const std::vector<NcclComm*>& comms);
  // The communicators of all lanes, taken from them; false: a lane does not let go.
  bool TakeAll(std::vector<NcclComm*>* comms);
  bool AbortAll(const std::vector<NcclComm*>& comms);
  void SetEnded();

  const std::shared_ptr<const NcclTables> tables_;
  ApartThreads* const threads_;
  const std::shared_ptr<NcclFate> fate_;
  const std::shared_ptr<CudaEvents> events_;
  HostStaging staging_;
  StoreMeeting meeting_;
  std::atomic<bool> woken_ = false;
  mutable std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;  // no communicator is left
  std::vector<std::unique_ptr<NcclLane>> lanes_;
};

}  // namespace muster
