// How long a TCP connection of the gang may stay without a sign of life from the other host.
//
// A process that ends closes its connections; a host that vanishes, or a cut link, leaves them
// open. So the sockets of store and rings are probed each second as soon as they have been silent
// for two, and 13 probes without an answer end the connection: after 15 s. Where every fifth packet
// is lost, each way, that happens to one silence in 500,000.
//
// The kernel probes where no data is on its way: at the receiving end of a ring's connection, and
// at a client that waits for the store's answer. TCP_USER_TIMEOUT, which covers data on its way, is
// not used: retries of data come at growing intervals, so that on a network that loses
// packets it ends healthy connections, and so it does where a process does not read for some time.
#pragma once

#include "common/base/status.h"

namespace muster {

// For a connected socket or a listening one, whose connections inherit it. Any thread.
Status SetTcpLiveness(int fd);

}  // namespace muster
