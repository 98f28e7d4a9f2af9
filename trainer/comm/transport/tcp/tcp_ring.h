// Connects the ranks of a group in a ring over TCP.
//
// Each rank listens at a port of its own until its left neighbour has connected, and connects to
// the right one; addresses come through the store. Before anything else each end of a connection
// proves that it knows the generation's token, for this end and the other's nonce (peer_proof.h),
// first the one that connects. A client that proves something else, or nothing, is dropped, or left
// waiting beside the neighbour, which it does not keep from coming in.
#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "trainer/comm/rendezvous/store_rendezvous.h"
#include "trainer/comm/transport/ring_link.h"

namespace muster {

// The trainer's thread; `meeting` is open, and its Cancel ends the call with kCancelled. `prefix`
// begins all keys of the group's generation. kUnavailable where the right neighbour has gone or
// knows another `token`; without one the proof shows only that a client has read the store.
// Precondition: two ranks at least.
Result<std::unique_ptr<RingLink>> ConnectTcpRing(StoreMeeting& meeting, const std::string& token,
                                                 const std::string& prefix, int rank, int size,
                                                 Deadline deadline);

}  // namespace muster
