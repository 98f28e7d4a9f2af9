#include "trainer/distributed/store_meeting.h"

#include <algorithm>
#include <utility>

#include "trainer/distributed/net_probe.h"
#include "trainer/distributed/tcp_store.h"

namespace muster {

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
  const bool serves = rendezvous.listen_fd.valid() || rendezvous.serve_store;
  StoreEndpoint endpoint{rendezvous.master_address, rendezvous.master_port,
                         std::move(rendezvous.listen_fd), rendezvous.serve_store};
  if (serves) {
    MUSTER_ASSIGN_OR_RETURN(store_, StoreSession::Open(std::move(endpoint), deadline));
  }
  MUSTER_ASSIGN_OR_RETURN(
      address_, WaitForPort(rendezvous.master_address, rendezvous.master_port, deadline,
                            [this](Duration pause) { return PauseUnlessCancelled(pause); }));
  if (!rendezvous.bind_address.empty()) address_ = rendezvous.bind_address;
  if (!serves) {
    MUSTER_ASSIGN_OR_RETURN(store_, StoreSession::Open(std::move(endpoint), deadline));
  }
  return OkStatus();
}

void StoreMeeting::Close() { store_.reset(); }

Status StoreMeeting::Publish(const std::string& key, const std::string& value) {
  return store_->Set(key, value);
}

// Pauses that grow: a peer is usually there within a millisecond, or seconds away.
Result<std::string> StoreMeeting::Await(const std::string& key, int rank, Deadline deadline) {
  Duration pause = std::chrono::microseconds(200);
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const bool found, store_->Has(key));
    if (found) return store_->Get(key);
    if (deadline.Expired()) {
      return DeadlineExceeded("rank " + std::to_string(rank) + " did not come in time");
    }
    if (!PauseUnlessCancelled(pause)) return Cancelled("forming the gang was aborted");
    pause = std::min<Duration>(2 * pause, std::chrono::milliseconds(5));
  }
}

bool StoreMeeting::PauseUnlessCancelled(Duration pause) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, pause, [this] { return cancelled_; });
}

void StoreMeeting::Cancel() {
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (interrupt_) interrupt_();
  }
  changed_.notify_all();
}

void StoreMeeting::Rearm() {
  std::lock_guard lock(mutex_);
  cancelled_ = false;
}

bool StoreMeeting::cancelled() {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

}  // namespace muster
