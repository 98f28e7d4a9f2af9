// HttpStream: one client that listens to server-sent events (HTML Living Standard, 9.2).
//
// Shared by the connection and the sender of messages; the loop's thread. It holds one
// message at most: what cannot be sent yet is not queued, the owner is called when it can, and
// composes what is newest then. So a slow reader costs one message and skips states, and one that
// takes nothing for kHttpStreamTimeout is gone. A comment goes out each kHttpHeartbeat, so that
// both sides notice a broken line.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>

namespace muster {

inline constexpr auto kHttpStreamTimeout = std::chrono::seconds(30);
inline constexpr auto kHttpHeartbeat = std::chrono::seconds(5);
// At once, of a server; more are answered with 503, so that other requests find a connection.
inline constexpr int kMaxHttpStreams = 64;

class HttpStream {
 public:
  virtual ~HttpStream() = default;

  // `data` without line ends. False, and nothing happens, while an earlier message is under way.
  virtual bool Send(std::string_view event, std::string_view data) = 0;
  virtual bool ready() const = 0;
  // Both are let go when the stream ends. `gone` is called once, but not after Close.
  virtual void Listen(std::function<void()> on_ready, std::function<void()> on_gone) = 0;
  virtual void Close() = 0;
};

}  // namespace muster
