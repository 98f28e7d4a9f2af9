#include "trainer/comm/transport/tcp/gloo_link.h"

#include <chrono>
#include <exception>
#include <string>

#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

namespace muster {
namespace {

constexpr std::uint64_t kDataSlot = 0;
constexpr std::uint64_t kWordSlot = 1;
constexpr std::byte kGoodbye{1};
constexpr std::byte kAlarm{2};
// Gloo knows no wait without end, and adds the time-out to the clock: so not the largest number.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
// A goodbye is one small packet; a neighbour whose queue is full for so long is not well.
constexpr std::chrono::milliseconds kGoodbyeTimeout = std::chrono::milliseconds(200);

// Gloo puts "[file:line] " before its messages; users need only what follows.
Status Lost(int peer, std::string why) {
  const std::size_t end = why.find("] ");
  if (why.starts_with('[') && end != std::string::npos) why.erase(0, end + 2);
  return Unavailable("lost rank " + std::to_string(peer) + ": " + why);
}

// Every call into Gloo may throw; none of it may leave this file.
template <typename Call>
Status Guarded(int peer, Call call) {
  try {
    call();
    return OkStatus();
  } catch (const std::exception& error) {
    return Lost(peer, error.what());
  } catch (...) {
    return Lost(peer, "unknown error");
  }
}

}  // namespace

GlooLink::GlooLink(std::shared_ptr<gloo::transport::Context> context)
    : context_(std::move(context)),
      left_((context_->rank + context_->size - 1) % context_->size),
      right_((context_->rank + 1) % context_->size) {}

Result<std::unique_ptr<GlooLink>> GlooLink::Start(
    std::shared_ptr<gloo::transport::Context> context) {
  std::unique_ptr<GlooLink> link(new GlooLink(std::move(context)));
  MUSTER_RETURN_IF_ERROR(Guarded(link->left_, [&] { link->StartWatch(link->left_); }));
  if (link->right_ != link->left_) {
    MUSTER_RETURN_IF_ERROR(Guarded(link->right_, [&] { link->StartWatch(link->right_); }));
  }
  return link;
}

void GlooLink::StartWatch(int peer) {
  auto watch = std::make_unique<Watch>();
  watch->peer = peer;
  watch->hears = context_->createUnboundBuffer(&watch->heard, 1);
  watch->tells = context_->createUnboundBuffer(&watch->told, 1);
  watch->hears->recv(peer, kWordSlot);
  Watch& started = *watch;
  {
    // A watcher that runs already may go through the list.
    std::lock_guard lock(mutex_);
    watches_.push_back(std::move(watch));
  }
  started.thread = std::thread([this, &started] { RunWatch(started); });
}

void GlooLink::RunWatch(Watch& watch) {
  bool heard = false;
  const Status status =
      Guarded(watch.peer, [&] { heard = watch.hears->waitRecv(nullptr, kForever); });
  watch.left = !status.ok() || heard;
  if (!status.ok()) {
    End(status);
  } else if (heard && watch.heard == kAlarm) {
    End(Lost(watch.peer, "it gave up its generation"));
  }
}

// Best effort: a neighbour that cannot be notified sees the connection break.
bool GlooLink::Tell(Watch& watch, std::byte word) {
  if (watch.left || watch.told != std::byte{}) return false;
  watch.told = word;
  return Guarded(watch.peer, [&] { watch.tells->send(watch.peer, kWordSlot); }).ok();
}

void GlooLink::End(const Status& reason) {
  std::lock_guard lock(mutex_);
  if (!status_.ok()) return;
  status_ = reason;
  for (const Buffer& buffer : receives_) buffer->abortWaitRecv();
  for (const Buffer& buffer : sends_) buffer->abortWaitSend();
  for (const auto& watch : watches_) (void)Tell(*watch, kAlarm);
}

Status GlooLink::Outcome() const {
  std::lock_guard lock(mutex_);
  return status_;
}

void GlooLink::Close() { End(Cancelled("the communicator was aborted")); }

Status GlooLink::PostSend(const void* data, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  MUSTER_RETURN_IF_ERROR(status_);
  return Guarded(right_, [&] {
    sends_.push_back(context_->createUnboundBuffer(const_cast<void*>(data), bytes));
    sends_.back()->send(right_, kDataSlot);
  });
}

Status GlooLink::PostReceive(void* data, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  MUSTER_RETURN_IF_ERROR(status_);
  return Guarded(left_, [&] {
    receives_.push_back(context_->createUnboundBuffer(data, bytes));
    receives_.back()->recv(left_, kDataSlot);
  });
}

// The front buffers stay where they are while they are waited for: only this thread removes any.
Status GlooLink::WaitSend(Deadline deadline) {
  gloo::transport::UnboundBuffer& buffer = *sends_.front();
  bool done = false;
  const Status status =
      Guarded(right_, [&] { done = buffer.waitSend(nullptr, deadline.RemainingMillis()); });
  // First, since Gloo itself breaks the connections when a wait times out.
  if (!done && deadline.Expired())
    return DeadlineExceeded("sending to rank " + std::to_string(right_) + " timed out");
  if (Status outcome = Outcome(); !outcome.ok()) return outcome;
  MUSTER_RETURN_IF_ERROR(status);
  std::lock_guard lock(mutex_);
  sends_.pop_front();
  return OkStatus();
}

Status GlooLink::WaitReceive(Deadline deadline) {
  gloo::transport::UnboundBuffer& buffer = *receives_.front();
  bool done = false;
  const Status status =
      Guarded(left_, [&] { done = buffer.waitRecv(nullptr, deadline.RemainingMillis()); });
  // First, since Gloo itself breaks the connections when a wait times out.
  if (!done && deadline.Expired())
    return DeadlineExceeded("receiving from rank " + std::to_string(left_) + " timed out");
  if (Status outcome = Outcome(); !outcome.ok()) return outcome;
  MUSTER_RETURN_IF_ERROR(status);
  std::lock_guard lock(mutex_);
  receives_.pop_front();
  return OkStatus();
}

// Destroying an unbound buffer waits until Gloo's thread has let go of its memory; closing the
// pairs then keeps that thread from turning over what is not taken any more.
void GlooLink::Drop() {
  {
    std::lock_guard lock(mutex_);
    sends_.clear();
    receives_.clear();
  }
  for (const auto& watch : watches_) {
    (void)Guarded(watch->peer, [&] { context_->getPair(watch->peer)->close(); });
  }
}

GlooLink::~GlooLink() {
  const bool in_order = Outcome().ok();
  if (in_order) {
    std::lock_guard lock(mutex_);
    for (const auto& watch : watches_) {
      if (!Tell(*watch, kGoodbye)) continue;
      (void)Guarded(watch->peer, [&] { watch->tells->waitSend(nullptr, kGoodbyeTimeout); });
    }
  }
  for (const auto& watch : watches_) watch->hears->abortWaitRecv();
  for (const auto& watch : watches_) {
    if (watch->thread.joinable()) watch->thread.join();
  }
  if (!in_order) Drop();
}

}  // namespace muster
