// NcclGang: the NCCL communicators of one generation in this process, and their common end.
//
// A gang's lanes (its own and those of the groups split off it) share one fate. The first error
// in any of them ends all of them, because NCCL's communicators must be aborted together: one
// that is left may wait for a kernel of another. An abort runs on a thread of its own.
//
// Threads: as communicator.h says. Owned by communicators, its Work objects, and while it is being
// ended by the thread that ends it.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "trainer/comm/rendezvous/store_rendezvous.h"
#include "trainer/comm/transport/nccl/nccl_lane.h"
#include "trainer/comm/transport/nccl/nccl_monitor.h"

namespace muster {

class NcclGang final : public NcclWatched, public std::enable_shared_from_this<NcclGang> {
 public:
  // Watched by `monitor` from here on; `monitor` outlives the calls of its owner.
  static std::shared_ptr<NcclGang> Make(std::shared_ptr<const NcclTables> tables,
                                        NcclMonitor* monitor);

  Status status() const { return fate_->status(); }
  // Where the ranks leave each other ids; cancelled when the gang fails. The trainer's thread.
  StoreMeeting& meeting() { return meeting_; }
  // Ends every operation under way and to come with `reason`, unless it has failed before.
  void Fail(const Status& reason);

  // Collective over the ranks that were given the same id. An error has failed the gang.
  Result<NcclLane*> OpenLane(NcclLane::Place place, const NcclUniqueId& id,
                             std::shared_ptr<CollectiveCell> progress, Deadline deadline);
  // To the monitor: there is work.
  void Wake() { monitor_->Wake(); }
  // Until the operation has ended or the gang has failed; false: the deadline came first.
  bool Await(const NcclOperation& operation, Deadline deadline);
  // The trainer's stream waits for the operation.
  Status OrderAfter(const NcclOperation& operation);

  // In order if nothing is wrong and nothing under way, else by abort. False: it does not end, and
  // this process should form no other gang.
  bool End(Deadline deadline);

  bool Poll(TimePoint now) override;

 private:
  NcclGang(std::shared_ptr<const NcclTables> tables, NcclMonitor* monitor);

  std::vector<NcclLane*> Lanes() const;
  // On threads of their own.
  void AbortLanes();
  void LeaveLanes();
  bool FinalizeAll(const std::vector<NcclComm*>& comms);
  // The communicators of all lanes, taken from them; false: a lane does not let go.
  bool TakeAll(std::vector<NcclComm*>* comms);
  bool AbortAll(const std::vector<NcclComm*>& comms);
  void SetEnded();

  const std::shared_ptr<const NcclTables> tables_;
  NcclMonitor* const monitor_;
  const std::shared_ptr<NcclFate> fate_;
  const std::shared_ptr<CudaEvents> events_;
  StoreMeeting meeting_;
  mutable std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;  // no communicator is left
  std::vector<std::unique_ptr<NcclLane>> lanes_;
};

}  // namespace muster
