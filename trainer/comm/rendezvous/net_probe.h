// Reaches the store of rank 0, which may come up later than the others, and finds out from which
// address this process does so: peers reach it there.
//
// Every wait ends when it is interrupted, but for looking up a name.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "trainer/comm/interrupt.h"

namespace muster {

// A connection, which does not block and has SetTcpLiveness; tries until a process listens.
// kCancelled, kDeadlineExceeded.
Result<UniqueFd> ConnectWhenUp(const std::string& address, int port, const Interrupt& interrupt,
                               Deadline deadline);
// Of this end, numeric ("127.0.0.1", "fe80::1").
Result<std::string> LocalAddress(int fd);

}  // namespace muster
