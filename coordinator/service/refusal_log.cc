#include "coordinator/service/refusal_log.h"

#include <utility>

namespace muster {
namespace {

// "ipv4:10.0.0.7:4711" without the port.
std::string HostOf(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

}  // namespace

void RefusalLog::Note(RequestNoted refusal) {
  std::string host = HostOf(refusal.actor.peer);
  if (!peers_.contains(host) && peers_.size() >= kMaxPeers) host = "";  // shared by all others
  Peer& peer = peers_[host];
  if (!peer.bucket.Take(clock_.Now())) {
    ++peer.dropped;
    return;
  }
  if (const std::uint64_t dropped = std::exchange(peer.dropped, 0); dropped > 0)
    refusal.status = Status(refusal.status.code(),
                            refusal.status.message() + " (after " + std::to_string(dropped) +
                                " refusals of this host that are not recorded)");
  runtime_.Handle(std::move(refusal));
}

bool RefusalLog::MayWait() {
  if (waiting_.fetch_add(1) < kMaxWaiting) return true;
  --waiting_;
  ++turned_away_;
  return false;
}

void RefusalLog::Noted(RequestNoted refusal) {
  --waiting_;
  peers_[HostOf(refusal.actor.peer)].dropped += turned_away_.exchange(0);
  Note(std::move(refusal));
}

}  // namespace muster
