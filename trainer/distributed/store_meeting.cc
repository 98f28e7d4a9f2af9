#include "trainer/distributed/store_meeting.h"

#include <algorithm>
#include <utility>

#include "trainer/distributed/net_probe.h"
#include "trainer/distributed/store_client.h"
#include "trainer/distributed/tcp_store.h"

namespace muster {
namespace {

// The store answers at once or its process is stopped, or gone with its host.
constexpr Duration kStorePatience = std::chrono::seconds(30);

}  // namespace

StoreMeeting::OnCancel::OnCancel(StoreMeeting& meeting, std::function<void()> interrupt)
    : meeting_(meeting) {
  std::lock_guard lock(meeting_.mutex_);
  if (meeting_.cancelled_) interrupt();
  meeting_.interrupt_ = std::move(interrupt);
}

StoreMeeting::OnCancel::~OnCancel() {
  std::lock_guard lock(meeting_.mutex_);
  meeting_.interrupt_ = nullptr;
}

StoreMeeting::StoreMeeting() = default;
StoreMeeting::~StoreMeeting() = default;

Status StoreMeeting::Open(Rendezvous rendezvous, Deadline deadline) {
  const std::string& master = rendezvous.master_address;
  const int port = rendezvous.master_port;
  if (rendezvous.listen_fd.valid() || rendezvous.serve_store) {
    MUSTER_ASSIGN_OR_RETURN(
        server_, TcpStoreServer::Start({master, port, std::move(rendezvous.listen_fd)}, deadline));
  }
  MUSTER_ASSIGN_OR_RETURN(UniqueFd socket, ConnectWhenUp(master, port, interrupted_, deadline));
  address_ = std::move(rendezvous.bind_address);
  if (address_.empty()) {
    MUSTER_ASSIGN_OR_RETURN(address_, LocalAddress(socket.get()));
  }
  const std::string name = "store at " + master + ":" + std::to_string(port);
  MUSTER_ASSIGN_OR_RETURN(client_,
                          StoreClient::Open(std::move(socket), name, interrupted_, deadline));
  return OkStatus();
}

void StoreMeeting::Close() {
  client_.reset();
  server_.reset();
}

Status StoreMeeting::Publish(const std::string& key, const std::string& value) {
  return client_->Set(key, value, Deadline::After(kStorePatience));
}

// Pauses that grow: a peer is usually there within a millisecond, or seconds away.
Result<std::string> StoreMeeting::Await(const std::string& key, int rank, Deadline deadline) {
  Duration pause = std::chrono::microseconds(200);
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const bool found, client_->Has(key, Deadline::After(kStorePatience)));
    if (found) return client_->Get(key, Deadline::After(kStorePatience));
    if (deadline.Expired()) {
      return DeadlineExceeded("rank " + std::to_string(rank) + " did not come in time");
    }
    if (!interrupted_.Pause(pause)) return Cancelled("forming the gang was aborted");
    pause = std::min<Duration>(2 * pause, std::chrono::milliseconds(5));
  }
}

void StoreMeeting::Cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  interrupted_.Raise();
  if (interrupt_) interrupt_();
}

void StoreMeeting::Rearm() {
  std::lock_guard lock(mutex_);
  cancelled_ = false;
  interrupted_.Clear();
}

bool StoreMeeting::cancelled() {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

}  // namespace muster
