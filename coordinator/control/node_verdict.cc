#include "coordinator/control/node_verdict.h"

namespace muster {

SilenceVerdict DecideSilence(const NodeVerdictInput& input) {
  const SilenceVerdict wait;
  if (input.all_silent) return wait;
  // Its ranks may be well, and a worker that is only slow returns.
  if (input.answered > 0) return wait;
  if (input.refused > 0) {
    if (input.silence >= kRefusedUntilLost) {
      return {NodeVerdict::kLost, "its worker is gone and did not come back"};
    }
    if (input.lost_peer) {
      return {NodeVerdict::kLostToJobs, "its worker is gone and ranks lost a peer there"};
    }
    return wait;
  }
  // The worker is stopped, or nothing on its host runs: the state of its ranks is unknown.
  if (input.silent > 0) {
    if (input.silence >= kRefusedUntilLost) {
      return {NodeVerdict::kLost, "its host takes connections, and its worker does not run"};
    }
    if (input.lost_peer && input.silence >= kSilentUntilLostToJobs) {
      return {NodeVerdict::kLostToJobs, "its worker does not run and ranks lost a peer there"};
    }
    return wait;
  }
  if (input.unreachable > 0) {
    if (input.complete && input.silence >= kUnreachableUntilLost) {
      return {NodeVerdict::kLost, "no other node reaches it"};
    }
    return wait;
  }
  if (input.complete && input.silence >= input.lease) {
    return {NodeVerdict::kLost, input.asked
                                    ? "no prober has answered within its lease"
                                    : "no other worker could probe it, and its lease has expired"};
  }
  return wait;
}

}  // namespace muster
