#include "trainer/comm/group/testing/in_process_communicator.h"

#include <utility>

#include "common/base/check.h"
#include "trainer/comm/group/testing/in_process_hub.h"
#include "trainer/comm/transport/ring_transport.h"
#include "trainer/comm/transport/shared/shared_transport.h"

namespace muster {
namespace {

class InProcessPlace final : public RendezvousStore {
 public:
  InProcessPlace(std::shared_ptr<InProcessHub> hub, InProcessTransport transport, int rank,
                 Duration operation_timeout)
      : hub_(std::move(hub)),
        transport_(transport),
        rank_(rank),
        limit_(std::make_shared<OperationLimit>(operation_timeout)) {}

  Status Open(Rendezvous rendezvous, Deadline) override {
    if (rendezvous.rank == rank_ && rendezvous.world_size == hub_->size()) return OkStatus();
    return InvalidArgument("rank and world size differ from those of the in-process group");
  }
  void Close() override {}

  Result<std::shared_ptr<Transport>> Meet(const Group& group,
                                          std::shared_ptr<CollectiveCell> counters,
                                          Deadline deadline) override {
    MUSTER_ASSIGN_OR_RETURN(auto circle, hub_->Join(rank_, group, deadline));
    if (transport_ == InProcessTransport::kSharedMemory) {
      auto shared = SharedTransport::Start(
          hub_->MakeSharedLink(std::move(circle), group.rank), std::move(counters),
          {group.rank, group.size, limit_, "threads that share memory"}, deadline);
      if (!shared.ok()) return shared.status();
      return std::shared_ptr<Transport>(*std::move(shared));
    }
    std::unique_ptr<RingLink> link;
    if (group.size > 1) link = hub_->MakeRingLink(std::move(circle), group.rank);
    return std::shared_ptr<Transport>(std::make_shared<RingTransport>(
        std::move(link), std::move(counters),
        RingTransportOptions{group.rank, group.size, limit_, "threads in a ring",
                             group.rank == 0 ? "threads in a ring" : ""}));
  }

  void Cancel(const Status&) override { hub_->SetCancelled(rank_, true); }
  void Rearm() override { hub_->SetCancelled(rank_, false); }
  OperationLimit& limit() override { return *limit_; }

 private:
  const std::shared_ptr<InProcessHub> hub_;
  const InProcessTransport transport_;
  const int rank_;
  const std::shared_ptr<OperationLimit> limit_;
};

}  // namespace

InProcessGroup::InProcessGroup(int world_size, InProcessTransport transport)
    : world_size_(world_size),
      transport_(transport),
      hub_(std::make_shared<InProcessHub>(world_size)) {}

InProcessGroup::~InProcessGroup() = default;

std::unique_ptr<Communicator> InProcessGroup::Join(int rank, Duration operation_timeout) {
  MUSTER_CHECK(rank >= 0 && rank < world_size_, "no such rank in this group");
  return std::make_unique<Communicator>(
      std::make_shared<InProcessPlace>(hub_, transport_, rank, operation_timeout));
}

void InProcessGroup::Kill(int rank) { hub_->Kill(rank); }

}  // namespace muster
