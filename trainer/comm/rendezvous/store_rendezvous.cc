#include "trainer/comm/rendezvous/store_rendezvous.h"

#include <algorithm>
#include <utility>

#include "trainer/comm/rendezvous/gang_store.h"
#include "trainer/comm/rendezvous/net_probe.h"
#include "trainer/comm/rendezvous/store_client.h"
#include "trainer/comm/rendezvous/tcp_liveness.h"
#include "trainer/comm/rendezvous/tcp_store.h"

namespace muster {
namespace {

// The store answers at once or its process is stopped, or gone with its host.
constexpr Duration kStoreTimeout = std::chrono::seconds(30);
// A wait that lasts is begun anew now and then, which shows whether the store still answers.
constexpr Duration kAskAgain = std::chrono::seconds(5);
// After a connection that the store closed before the proof.
constexpr Duration kComeAgain = std::chrono::milliseconds(20);

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

Status StoreMeeting::Serve(Rendezvous& rendezvous, Deadline deadline) {
  if (!rendezvous.listen_fd.valid() && !rendezvous.serve_store) return OkStatus();
  if (!token_.empty() && rendezvous.listen_fd.valid()) {
    MUSTER_RETURN_IF_ERROR(SetTcpLiveness(rendezvous.listen_fd.get()));
    MUSTER_ASSIGN_OR_RETURN(gang_store_, GangStore::Start(std::move(rendezvous.listen_fd), token_));
    return OkStatus();
  }
  MUSTER_ASSIGN_OR_RETURN(server_,
                          TcpStoreServer::Start({rendezvous.master_address, rendezvous.master_port,
                                                 std::move(rendezvous.listen_fd)},
                                                deadline));
  return OkStatus();
}

Status StoreMeeting::Open(Rendezvous rendezvous, Deadline deadline) {
  const std::string& master = rendezvous.master_address;
  const int port = rendezvous.master_port;
  token_ = std::move(rendezvous.token);
  MUSTER_RETURN_IF_ERROR(Serve(rendezvous, deadline));
  const std::string name = "store at " + master + ":" + std::to_string(port);
  address_ = std::move(rendezvous.bind_address);
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(UniqueFd socket, ConnectWhenUp(master, port, interrupted_, deadline));
    if (address_.empty()) {
      MUSTER_ASSIGN_OR_RETURN(address_, LocalAddress(socket.get()));
    }
    auto client = StoreClient::Open(std::move(socket), name, interrupted_, deadline,
                                    {token_, rendezvous.rank});
    if (client.ok()) {
      client_ = *std::move(client);
      return OkStatus();
    }
    if (client.status().code() != StatusCode::kAborted) return client.status();
    if (deadline.Expired()) return DeadlineExceeded(client.status().message());
    if (!interrupted_.Pause(std::min(kComeAgain, deadline.Remaining())))
      return Cancelled("forming the gang was aborted");
  }
}

void StoreMeeting::Close() {
  client_.reset();
  server_.reset();
  gang_store_.reset();
}

Status StoreMeeting::Publish(const std::string& key, const std::string& value) {
  return client_->Set(key, value, Deadline::After(kStoreTimeout));
}

Result<std::string> StoreMeeting::Await(const std::string& key, int rank, Deadline deadline) {
  MUSTER_RETURN_IF_ERROR(AwaitKeys({key}, rank, deadline));
  return client_->Get(key, Deadline::After(kStoreTimeout));
}

Result<std::vector<std::string>> StoreMeeting::AwaitAll(const std::string& stem, int ranks,
                                                        Deadline deadline) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < ranks; ++rank) keys.push_back(stem + std::to_string(rank));
  MUSTER_RETURN_IF_ERROR(AwaitKeys(keys, 0, deadline));
  return client_->GetAll(keys, Deadline::After(kStoreTimeout));
}

// The server is the one that waits: thousands of clients that ask again and again would leave rank
// 0 no turn at its own store.
Status StoreMeeting::AwaitKeys(const std::vector<std::string>& keys, int first, Deadline deadline) {
  for (;;) {
    const Deadline until = Deadline::After(std::min(deadline.Remaining(), kAskAgain));
    const Result<bool> came = client_->Wait(keys, until, kStoreTimeout);
    if (came.status().code() == StatusCode::kCancelled) {
      return Cancelled("forming the gang was aborted");
    }
    if (!came.ok()) return came.status();
    if (*came) return OkStatus();
    if (deadline.Expired()) return NameMissing(keys, first);
  }
}

Status StoreMeeting::NameMissing(const std::vector<std::string>& keys, int first) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    MUSTER_ASSIGN_OR_RETURN(const bool found,
                            client_->Has(keys[i], Deadline::After(kStoreTimeout)));
    if (found) continue;
    return DeadlineExceeded("rank " + std::to_string(first + static_cast<int>(i)) +
                            " did not come in time");
  }
  return OkStatus();
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

}  // namespace muster
