#include "trainer/distributed/host_communicator.h"

#include <string>
#include <utility>

#include "trainer/distributed/gloo_ring.h"
#include "trainer/distributed/group_communicator.h"
#include "trainer/distributed/ring_transport.h"
#include "trainer/distributed/store_meeting.h"

namespace muster {
namespace {

class HostPlace final : public MeetingPlace {
 public:
  explicit HostPlace(HostCommunicatorOptions options) : options_(options) {}

  Status Open(Rendezvous rendezvous, Deadline deadline) override {
    if (rendezvous.world_size == 1) return OkStatus();
    return meeting_.Open(std::move(rendezvous), deadline);
  }

  void Close() override { meeting_.Close(); }

  Result<std::shared_ptr<Transport>> Meet(const Group& group,
                                          std::shared_ptr<TransportCounters> counters,
                                          Deadline deadline) override {
    std::unique_ptr<RingLink> link;
    std::string description = "alone";
    if (group.size > 1) {
      if (!meeting_.is_open()) return FailedPrecondition("the gang was taken apart");
      const std::string prefix =
          "muster/" + std::to_string(group.generation) + "/" + group.name + "/";
      MUSTER_ASSIGN_OR_RETURN(link,
                              ConnectGlooRing(meeting_, prefix, group.rank, group.size, deadline));
      description = "Gloo from " + meeting_.address();
    }
    return std::shared_ptr<Transport>(std::make_shared<RingTransport>(
        std::move(link), std::move(counters),
        RingTransportOptions{group.rank, group.size, options_.operation_timeout,
                             std::move(description)}));
  }

  void Cancel() override { meeting_.Cancel(); }
  void Rearm() override { meeting_.Rearm(); }

 private:
  const HostCommunicatorOptions options_;
  StoreMeeting meeting_;
};

}  // namespace

std::unique_ptr<Communicator> MakeHostCommunicator(HostCommunicatorOptions options) {
  return std::make_unique<GroupCommunicator>(std::make_shared<HostPlace>(options));
}

}  // namespace muster
