// GuardianLink: a worker's connection to one guardian, on the worker's loop, of which it takes a
// bounded part at a time, however much the other end sends.
//
// Owned by AgentRunner; loop thread only. After `on_closed` was called nothing more arrives.
// Destroying it closes the connection without a call.
#pragma once

#include <functional>
#include <memory>

#include "common/control_pipe/packet_socket.h"
#include "common/runtime/event_loop.h"
#include "worker/guardian/protocol.h"

namespace muster::worker {

class GuardianLink {
 public:
  struct Handlers {
    // `descriptor` came with the event (a progress page, a segment), or is not valid.
    std::function<void(const GuardianEvent& event, UniqueFd descriptor)> on_event;
    std::function<void(const Status& why)> on_closed;
  };

  GuardianLink(EventLoop& loop, PacketSocket socket, Handlers handlers);
  ~GuardianLink();
  GuardianLink(const GuardianLink&) = delete;
  GuardianLink& operator=(const GuardianLink&) = delete;

  // With a descriptor if it is not -1.
  void Send(const GuardianCommand& command, int descriptor = -1);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace muster::worker
