#include "trainer/comm/group/host_communicator.h"

#include <string>
#include <utility>

#include "trainer/comm/rendezvous/store_rendezvous.h"
#include "trainer/comm/transport/ring_transport.h"
#include "trainer/comm/transport/shared/shared_transport.h"
#include "trainer/comm/transport/shared/unix_mesh.h"
#include "trainer/comm/transport/tcp/tcp_ring.h"

namespace muster {
namespace {

class HostPlace final : public RendezvousStore {
 public:
  explicit HostPlace(const HostCommunicatorOptions& options)
      : limit_(std::make_shared<OperationLimit>(options.operation_timeout)) {}

  Status Open(Rendezvous rendezvous, Deadline deadline) override {
    if (rendezvous.world_size == 1) return OkStatus();
    return meeting_.Open(std::move(rendezvous), deadline);
  }

  void Close() override { meeting_.Close(); }

  Result<std::shared_ptr<Transport>> Meet(const Group& group,
                                          std::shared_ptr<CollectiveCell> counters,
                                          Deadline deadline) override {
    if (group.size == 1) return ShareMemory(nullptr, group, std::move(counters), deadline);
    if (!meeting_.is_open()) return FailedPrecondition("the gang was taken apart");
    const std::string prefix =
        "muster/" + std::to_string(group.generation) + "/" + group.name + "/";
    MUSTER_ASSIGN_OR_RETURN(UnixMesh mesh,
                            ConnectUnixMesh(meeting_, prefix, group.rank, group.size, deadline));
    if (mesh.link) {
      return ShareMemory(std::move(mesh.link), group, std::move(counters), deadline);
    }
    MUSTER_ASSIGN_OR_RETURN(auto ring, ConnectTcpRing(meeting_, meeting_.token(), prefix,
                                                      group.rank, group.size, deadline));
    return std::shared_ptr<Transport>(std::make_shared<RingTransport>(
        std::move(ring), std::move(counters),
        RingTransportOptions{
            group.rank, group.size, limit_,
            "TCP from " + meeting_.address() + " (no shared memory: " + mesh.why_not + ")",
            mesh.one_host ? mesh.why_not : ""}));
  }

  void Cancel(const Status&) override { meeting_.Cancel(); }
  void Rearm() override { meeting_.Rearm(); }
  OperationLimit& limit() override { return *limit_; }

 private:
  // `link` may be null for a group of one.
  Result<std::shared_ptr<Transport>> ShareMemory(std::shared_ptr<SharedLink> link,
                                                 const Group& group,
                                                 std::shared_ptr<CollectiveCell> counters,
                                                 Deadline deadline) {
    const StoreMeeting::OnCancel stop(meeting_, [link] {
      if (link) link->Stop();
    });
    auto shared = SharedTransport::Start(
        std::move(link), std::move(counters),
        {group.rank, group.size, limit_, group.size == 1 ? "alone" : "shared memory"}, deadline);
    if (!shared.ok()) return shared.status();
    return std::shared_ptr<Transport>(*std::move(shared));
  }

  const std::shared_ptr<OperationLimit> limit_;
  StoreMeeting meeting_;
};

}  // namespace

std::unique_ptr<Communicator> MakeHostCommunicator(HostCommunicatorOptions options) {
  return std::make_unique<Communicator>(MakeHostPlace(options));
}

std::shared_ptr<RendezvousStore> MakeHostPlace(const HostCommunicatorOptions& options) {
  return std::make_shared<HostPlace>(options);
}

}  // namespace muster
