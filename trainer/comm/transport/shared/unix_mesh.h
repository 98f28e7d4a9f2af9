// Finds out whether the ranks of a group are all on one host, and connects them if so.
//
// Each rank publishes in the store which host it is on and the name of a socket in the abstract
// namespace. Rank 0 decides for all, so that all take the same way: once when all ranks have said
// where they are, and again when all have tried to connect.
#pragma once

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "trainer/comm/rendezvous/store_rendezvous.h"
#include "trainer/comm/transport/shared/unix_link.h"

namespace muster {

// Either a link, or why the group has to do without, the same reason on all ranks.
struct UnixMesh {
  std::unique_ptr<UnixLink> link;
  std::string why_not;
  bool one_host = false;  // no two ranks are known to be on different ones; rank 0's
};

// The trainer's thread; `meeting` is open, and its Cancel ends the call with kCancelled. `prefix`
// begins all keys of the group's generation. Precondition: two ranks at least.
Result<UnixMesh> ConnectUnixMesh(StoreMeeting& meeting, const std::string& prefix, int rank,
                                 int size, Deadline deadline);

}  // namespace muster
