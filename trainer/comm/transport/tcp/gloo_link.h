// GlooLink: a RingLink over two pairs of Gloo's TCP transport, with unbound buffers alone.
//
// Gloo reports a lost connection to a waiter only if its block was not yet on the wire. So each
// neighbour gets a watcher: a thread that waits for a word that never comes while the neighbour
// lives. It ends with an error when the connection breaks, whatever is in flight, and wakes all
// waits. The word itself is either "goodbye", from a neighbour that leaves in order, or "alarm",
// from one that has lost another: so the news travels round the ring without waiting for sockets.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gloo/transport/context.h>

#include "trainer/comm/transport/ring_link.h"

namespace muster {

class GlooLink final : public RingLink {
 public:
  // `context` has connected pairs to both neighbours (one pair where they are the same rank).
  static Result<std::unique_ptr<GlooLink>> Start(std::shared_ptr<gloo::transport::Context> context);
  ~GlooLink() override;

  Status PostSend(const void* data, std::size_t bytes) override;
  Status PostReceive(void* data, std::size_t bytes) override;
  Status WaitSend(Deadline deadline) override;
  Status WaitReceive(Deadline deadline) override;
  void Drop() override;
  void Close() override;

 private:
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
  // One neighbour: the word awaited from it and the word it may be sent, once.
  struct Watch {
    int peer = 0;
    std::byte heard = {};
    std::byte told = {};
    std::atomic<bool> left = false;  // said goodbye, or lost
    Buffer hears;
    Buffer tells;
    std::thread thread;
  };

  explicit GlooLink(std::shared_ptr<gloo::transport::Context> context);
  void StartWatch(int peer);
  void RunWatch(Watch& watch);
  // Ends the link: the first reason stays, every wait wakes, both neighbours are notified.
  void End(const Status& reason);
  Status Outcome() const;
  // False when it could not be said.
  bool Tell(Watch& watch, std::byte word);

  const std::shared_ptr<gloo::transport::Context> context_;
  const int left_;
  const int right_;
  mutable std::mutex mutex_;  // guards what End shares with the progress thread
  Status status_;
  std::deque<Buffer> sends_;
  std::deque<Buffer> receives_;
  std::vector<std::unique_ptr<Watch>> watches_;
};

}  // namespace muster
