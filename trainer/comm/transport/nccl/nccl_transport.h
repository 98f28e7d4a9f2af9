// NcclTransport: the Transport of ranks on GPUs: NCCL's own collectives, on streams of the device.
//
// All-gathers, broadcasts, rings and all-to-alls run on one lane, reductions and barriers on
// another: each lane has a communicator of NCCL's and a stream of its own, so that the two overlap.
// An operation over the device's memory is over for the trainer's thread as soon as NCCL has taken
// it: Wait makes the trainer's stream wait. Barrier, and operations over ordinary memory of the
// host, which is staged on the device, wait for the GPU. ReduceScatter whose types differ goes
// through scratch memory of a bounded size, piece by piece.
//
// A group of one rank calls no NCCL. How transports end is the gang's (nccl_gang.h).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "trainer/comm/transport.h"
#include "trainer/comm/transport/nccl/nccl_gang.h"

namespace muster {

class NcclTransport final : public Transport {
 public:
  // For gathers and reductions; the same on all ranks of the group.
  using Ids = std::array<NcclUniqueId, 2>;

  NcclTransport(std::shared_ptr<const NcclTables> tables, std::shared_ptr<NcclGang> gang,
                std::shared_ptr<CollectiveCell> counters, Group group, const Ids& ids);

  Status Begin(Deadline deadline) override;
  void Abort(const Status& reason) override { gang_->Fail(reason); }
  std::unique_ptr<Work> Submit(const Operation& operation) override;
  std::string Describe() const override;
  std::string fallback() const override;

 private:
  // An operation's ordinary memory of the host, and where this rank's part of it lies on the
  // device: inside of the whole, or behind it.
  struct HostMemory {
    void* data = nullptr;
    std::size_t bytes = 0;
    const void* in = nullptr;
    std::size_t in_bytes = 0;
    std::size_t in_offset = 0;
  };
  class DeviceWork;
  class HostWork;

  bool IsOverHostMemory(const Operation& operation) const;
  HostMemory HostMemoryOf(const Operation& operation) const;
  std::unique_ptr<Work> SubmitStaged(const Operation& operation);
  // `body` puts the operation on its lane. An error has failed the gang.
  Result<std::shared_ptr<NcclOperation>> Issue(const Operation& operation,
                                               const std::function<Status(NcclLane&)>& body);
  // Over the device's memory.
  Status Run(NcclLane& lane, const Operation& operation);
  Status ReduceScatter(NcclLane& lane, const ReduceScatterArgs& args);
  Status ReduceInPieces(NcclLane& lane, const ReduceScatterArgs& args);
  NcclResult RingSendRecv(const Operation& operation, NcclComm* comm, CudaStream stream) const;
  Status AllToAll(NcclLane& lane, const Operation& operation);
  NcclResult SendBlocks(const Operation& operation, NcclComm* comm, CudaStream stream) const;
  // On the lane's stream. `to` may be `from`.
  Status Copy(NcclLane& lane, void* to, const void* from, std::size_t bytes);
  Status Convert(NcclLane& lane, const ConvertRows& rows);

  const std::shared_ptr<const NcclTables> tables_;
  const std::shared_ptr<NcclGang> gang_;
  const std::shared_ptr<CollectiveCell> counters_;
  const Group group_;
  const Ids ids_;
  NcclLane* gathers_ = nullptr;
  NcclLane* reductions_ = nullptr;
};

}  // namespace muster
