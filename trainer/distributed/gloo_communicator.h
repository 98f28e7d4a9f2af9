// The communicator of CPU gangs: rings over Gloo's TCP transport, rendezvous through a TCPStore.
//
// Of Gloo only unbound buffers are used, never its ready-made collectives: those cannot be woken
// by an abort. Every rank is connected to its two ring neighbours; a lost neighbour makes a rank
// close its own connections, so the news travels round the ring within milliseconds.
//
// Threads: besides the caller's there is one progress thread per formed communicator, which runs
// the operations in the order they were issued, and Gloo's event thread. None of them spins.
// The destructor aborts what is under way and returns at once.
#pragma once

#include <memory>
#include <string>

#include "trainer/distributed/communicator.h"

namespace muster {

struct GlooOptions {
  // An operation that has not ended this long after it began fails with kDeadlineExceeded. The
  // supervisor finds hangs much earlier; this is the last line.
  Duration operation_timeout = std::chrono::minutes(10);
};

std::unique_ptr<Communicator> MakeGlooCommunicator(GlooOptions options = {});

}  // namespace muster
