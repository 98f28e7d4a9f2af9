// The communicators of CPU gangs; rendezvous through a TCPStore.
//
// Ranks that are all on one host share its memory; others form a ring over TCP.
// Each group that is split off chooses for itself, so the ranks of one node share memory in a
// group of their own even where the gang spans several nodes. MUSTER_SHM_DISABLE=1 on any rank
// keeps its groups to sockets.
//
// In a ring every rank is connected to its two neighbours; a lost neighbour makes a rank close its
// own connections, so the news travels round the ring within milliseconds.
//
// Threads: besides the caller's there is one progress thread per ring, which runs the operations in
// the order they were issued. It does not spin.
// The destructor aborts what is under way and returns at once.
#pragma once

#include <memory>

#include "trainer/comm/communicator.h"

namespace muster {

struct HostCommunicatorOptions {
  // An operation that has not ended this long after it began fails with kDeadlineExceeded. The
  // supervisor finds hangs much earlier; this is the last line.
  Duration operation_timeout = std::chrono::minutes(10);
};

std::unique_ptr<Communicator> MakeHostCommunicator(HostCommunicatorOptions options = {});
// What it is made of.
std::shared_ptr<RendezvousStore> MakeHostPlace(const HostCommunicatorOptions& options);

}  // namespace muster
