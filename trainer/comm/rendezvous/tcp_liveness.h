// How long a TCP connection of the gang may stay without a sign of life from the other host.
//
// A process that ends closes its connections; a host that vanishes, or a cut link, leaves them
// open, and by default the kernel takes a quarter of an hour to give up. So the sockets of store
// and rings are probed when idle, and data that is not taken for five seconds ends the connection.
// A process that is stopped counts as a vanished host once its socket's buffer is full.
#pragma once

#include <sys/socket.h>

#include <vector>

#include "common/base/status.h"

namespace muster {

// For a connected socket or a listening one, whose connections inherit it. Any thread.
Status SetTcpLiveness(int fd);

// For libraries that do not show their sockets: for every TCP connection of this process from one
// of these addresses or to one, port included. Returns how many there are. Connections that other
// threads make or close meanwhile may be missed.
int SetTcpLivenessAt(const std::vector<sockaddr_storage>& addresses);

}  // namespace muster
