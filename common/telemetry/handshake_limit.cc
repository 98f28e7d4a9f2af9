#include "common/telemetry/handshake_limit.h"

#include <algorithm>
#include <utility>

namespace muster {

std::uint64_t HandshakeLimit::Begin(Handshake handshake, TimePoint now) {
  const std::uint64_t id = next_id_++;
  open_.emplace(id, Open{std::move(handshake), now});
  return id;
}

Duration HandshakeLimit::MakeRoom(TimePoint now) {
  if (!full()) return Duration::zero();
  Duration soonest = kSilentTimeout;
  for (auto it = open_.begin(); it != open_.end(); ++it) {
    const Open& open = it->second;
    const Duration timeout = open.handshake.has_spoken() ? kTimeout : kSilentTimeout;
    const Duration left = open.begun + timeout - now;
    if (left > Duration::zero()) {
      soonest = std::min(soonest, left);
      continue;
    }
    const std::function<void()> hang_up = std::move(it->second.handshake.hang_up);
    open_.erase(it);
    ++displaced_;
    hang_up();
    return Duration::zero();
  }
  return soonest;
}

}  // namespace muster
