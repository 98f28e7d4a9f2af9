// PeerLink: the questions of other supervisors to this one, and of this one to them.
//
// gRPC over mutual TLS: both sides show a certificate of the allocation's own authority. Owned by a
// Supervisor. gRPC's threads only post to the loop; everything else here is loop thread only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/runtime/event_loop.h"
#include "worker/allocation/peer_view.h"

namespace muster::worker {

class PeerLink {
 public:
  struct Options {
    std::string allocation;    // peers of another one are refused
    int run = 0;               // and peers of another run
    std::string address;       // to listen at, numeric, without a port
    std::string answers_with;  // directories of credentials: a coordinator's,
    std::string asks_with;     // and a node's
  };
  // Called for each question; the answer is what it returns.
  using OnAsked = std::function<PeerView(const PeerView& peer)>;
  // kUnavailable: the peer's machine refuses the connection. Everything else but OK: silence.
  using OnAnswer = std::function<void(const Result<PeerView>& answer)>;

  static Result<std::unique_ptr<PeerLink>> Listen(EventLoop& loop, Options options,
                                                  OnAsked on_asked);
  ~PeerLink();
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  // HOST:PORT.
  const std::string& address() const;

  // Questions of others that the loop has not processed. Any thread.
  std::size_t unanswered() const;

  // Ends within `limit`, and then calls `done` once; not after the link is gone.
  void Ask(const std::string& address, const PeerView& view, Duration limit, OnAnswer done);

 private:
  struct Impl;
  explicit PeerLink(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::worker
