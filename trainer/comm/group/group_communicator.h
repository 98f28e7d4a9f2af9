// GroupCommunicator: the Communicator of one group of ranks, made of a RendezvousStore and the
// Transport that the group got there.
//
// What all transports have in common is here: forming again, the groups that Split makes of a
// group, aborts from any thread that reach the groups below, and checks of arguments.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/comm/transport/transport.h"

namespace muster {

class GroupCommunicator final : public Communicator {
 public:
  // A world, unformed. The place is its own and that of the groups below it.
  explicit GroupCommunicator(std::shared_ptr<RendezvousStore> place);
  ~GroupCommunicator() override;

  Status Form(Rendezvous rendezvous, Deadline deadline) override;
  int rank() const override { return group_.rank; }
  int size() const override { return group_.size; }
  void CountInto(std::shared_ptr<ProgressWriter> page) override { page_ = std::move(page); }
  void Abort(const Status& reason) override;
  void AbortThrough(Generation generation, const Status& reason) override;
  Result<std::unique_ptr<SharedRegion>> Share(RegionKind kind, std::size_t bytes,
                                              int kept) override;
  Result<std::unique_ptr<Communicator>> Split(const std::string& name,
                                              const std::vector<int>& members,
                                              Deadline deadline) override;

  std::unique_ptr<Work> AllGather(const void* shard, void* full, std::size_t count,
                                  ElementType type) override;
  std::unique_ptr<Work> ReduceScatter(const ReduceScatterArgs& args) override;
  std::unique_ptr<Work> AllReduce(void* data, std::size_t count, ElementType type,
                                  ReduceOp op) override;
  std::unique_ptr<Work> Broadcast(void* data, std::size_t bytes, int root) override;
  std::unique_ptr<Work> RingSendRecv(const void* send, void* receive, std::size_t bytes) override;
  Status Barrier() override;

  OperationLimit& limit() const override { return place_->limit(); }
  CommunicatorCounters counters() const override;
  std::string Describe() const override;
  std::string fallback() const override;

 private:
  // What Abort reaches from any thread, also through the group above.
  struct Reach;

  // `name` is the cell's.
  Status Join(const std::string& name, Group group, Deadline deadline);
  Status BeginForm(Generation generation);
  // Ends the generation: the groups below first, then this one.
  void Leave();
  Status CheckFormed() const;
  std::unique_ptr<Work> Submit(const Operation& operation);

  const std::shared_ptr<RendezvousStore> place_;
  std::shared_ptr<ProgressWriter> page_;
  std::shared_ptr<CollectiveCell>
      counters_;  // written by the trainer's thread, under reach_->mutex
  const std::shared_ptr<Reach> reach_;
  const bool is_world_;
  Group group_;
  std::vector<std::string> splits_;  // the names of all groups asked for in this generation

  GroupCommunicator(std::shared_ptr<RendezvousStore> place, bool is_world);
};

}  // namespace muster
