// NcclCommunicator: the Communicator of GPU gangs, over NCCL without its blocking calls.
//
// NCCL's calls are made non-blocking and a thread of ours watches over them (nccl_monitor.h), so
// that a lost peer, a hang and an abort are Status values within a deadline, and the process can
// form the next generation. All-gathers and broadcasts run on one lane, reductions and barriers on
// another: each lane has a communicator and a stream of its own.
//
// Wait makes the trainer's stream wait for the operation, which may still run: an error shows at
// the next operation or Wait, and until the gang has ended (the next Form, the destructor) NCCL may
// still write to the buffers. Barrier alone waits for the GPU. ReduceScatter whose types differ
// goes through scratch memory of a bounded size, piece by piece.
//
// AllGather, AllReduce, Broadcast and RingSendRecv also take ordinary memory of the host, which is
// staged on the device; their Wait then waits for the GPU, and comes before the communicator's end.
// The memory is the caller's again when it returns.
//
// A gang of one rank calls no NCCL. Groups (Split) share the gang's fate both ways: their error or
// Abort ends the gang, since NCCL's communicators must be aborted together. Their communicators
// are given back when the gang ends.
//
// A gang that cannot be ended (ncclCommAbort blocks) makes Form fail with kFailedPrecondition: the
// process must be replaced.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/comm/transport/nccl/host_staging.h"
#include "trainer/comm/transport/nccl/nccl_gang.h"

namespace muster {

class NcclCommunicator final : public Communicator {
 public:
  // `monitor` is the process's one, shared by all of its communicators.
  NcclCommunicator(std::shared_ptr<const NcclTables> tables, std::shared_ptr<NcclMonitor> monitor);
  ~NcclCommunicator() override;

  Status Form(Rendezvous rendezvous, Deadline deadline) override;
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void CountInto(std::shared_ptr<ProgressWriter> page) override { page_ = std::move(page); }
  void Abort(const Status& reason) override;
  void AbortThrough(Generation generation, const Status& reason) override;
  Result<std::unique_ptr<SharedRegion>> Share(RegionKind kind, std::size_t bytes,
                                              int kept) override;
  Result<std::unique_ptr<Communicator>> Split(const std::string& name,
                                              const std::vector<int>& members,
                                              Deadline deadline) override;

  std::unique_ptr<muster::Work> AllGather(const void* shard, void* full, std::size_t count,
                                          ElementType type) override;
  std::unique_ptr<muster::Work> ReduceScatter(const ReduceScatterArgs& args) override;
  std::unique_ptr<muster::Work> AllReduce(void* data, std::size_t count, ElementType type,
                                          ReduceOp op) override;
  std::unique_ptr<muster::Work> Broadcast(void* data, std::size_t bytes, int root) override;
  std::unique_ptr<muster::Work> RingSendRecv(const void* send, void* receive,
                                             std::size_t bytes) override;
  Status Barrier() override;

  OperationLimit& limit() const override { return *tables_->limit; }
  CommunicatorCounters counters() const override;
  std::string Describe() const override;
  std::string fallback() const override { return ""; }  // NCCL does not say what it chose

 private:
  class OperationWork;
  class StagedWork;
  // Issues the operation's calls on the lane.
  using Body = std::function<Status(NcclLane&)>;
  Status Disband();
  // A new gang for that generation, unless it has been called off.
  Status BeginForm(Generation generation);
  void CountAs(const std::string& cell);
  Status Meet(Rendezvous rendezvous, Deadline deadline);
  // `leader`: the rank, in the gang, that makes the ids.
  Status OpenLanes(const std::string& name, int leader, Deadline deadline);
  Result<NcclUniqueId> ExchangeId(const std::string& key, int leader, Deadline deadline);
  Status CheckLeadersVersion(const std::string& text, int own_version) const;
  std::shared_ptr<NcclGang> gang() const;

  // What a Work or a Barrier waits for; an error has failed the gang, unless the caller is wrong.
  Result<std::shared_ptr<NcclOperation>> Issue(NcclLane* lane, CollectiveOp op, std::size_t bytes,
                                               const Body& body);
  std::unique_ptr<muster::Work> Submit(NcclLane* lane, CollectiveOp op, std::size_t bytes,
                                       const Body& body);
  // An operation over ordinary memory of the host. `in` is this rank's part of it, or lies behind
  // it on the device; `call` gets the device's copy of the whole.
  struct HostMemory {
    void* data = nullptr;
    std::size_t bytes = 0;
    const void* in = nullptr;
    std::size_t in_bytes = 0;
    std::size_t in_offset = 0;
  };
  using StagedCall = std::function<NcclResult(void* device, NcclComm* comm, CudaStream stream)>;
  std::unique_ptr<muster::Work> SubmitStaged(NcclLane* lane, CollectiveOp op, std::size_t sent,
                                             const HostMemory& memory, const StagedCall& call);
  bool IsHostMemory(const void* memory) const { return tables_->cuda->IsHostMemory(memory); }
  // Until the operation has ended on the GPU.
  Status AwaitEnd(const NcclOperation& operation);

  std::unique_ptr<muster::Work> Failed(Status status);
  // On the lane's stream. `to` may be `from`.
  Status Copy(NcclLane& lane, void* to, const void* from, std::size_t bytes);
  Status Convert(NcclLane& lane, const ConvertRows& rows);
  Status ReduceInPieces(NcclLane& lane, const ReduceScatterArgs& args);

  const std::shared_ptr<const NcclTables> tables_;
  const std::shared_ptr<NcclMonitor> monitor_;
  HostStaging staging_;
  bool is_group_ = false;  // made by Split
  int rank_ = 0;
  int size_ = 1;
  std::shared_ptr<ProgressWriter> page_;
  // Its counts; written by the trainer's thread, under mutex_.
  std::shared_ptr<CollectiveCell> progress_;
  std::string key_prefix_;             // in the store
  std::map<std::string, int> splits_;  // so far, by name and members
  NcclLane* gathers_ = nullptr;
  NcclLane* reductions_ = nullptr;

  mutable std::mutex mutex_;
  std::shared_ptr<NcclGang> gang_;  // null: not formed
  Generation generation_ = 0;       // of the gang
  Generation called_off_ = -1;      // through which Form fails
  Status called_off_reason_;
  bool formed_once_ = false;
};

}  // namespace muster
