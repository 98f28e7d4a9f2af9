// Connects the ranks of a group in a ring over Gloo's TCP transport: neighbours find each other's
// address through the store. Gloo does not show its sockets: once connected they are found among
// the process's descriptors by their addresses, to get SetTcpLiveness (tcp_liveness.h). See
// ring_link.h for the rules of what comes out.
#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "trainer/comm/rendezvous/store_rendezvous.h"
#include "trainer/comm/transport/ring_link.h"

namespace muster {

// The trainer's thread; `meeting` is open, and its Cancel ends the call with kCancelled. `prefix`
// begins all keys of the group's generation. Neighbours prove to each other that they know `token`
// (empty: no proof); kUnavailable where one does not. Precondition: two ranks at least.
Result<std::unique_ptr<RingLink>> ConnectGlooRing(StoreMeeting& meeting, const std::string& token,
                                                  const std::string& prefix, int rank, int size,
                                                  Deadline deadline);

}  // namespace muster
