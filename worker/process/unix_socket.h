// Named SOCK_SEQPACKET sockets below a directory of any length.
//
// A socket address holds 108 bytes; bind and connect therefore go through an open descriptor of the
// directory. Free functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/control_pipe/packet_socket.h"

namespace muster {

// Another user beside this one and root, who may be at the other end. kNoOtherUser: none.
inline constexpr std::int64_t kNoOtherUser = -1;

// Listens at `directory`/`name`, replacing a file left by a dead owner; only this user may connect,
// and with `for_group` the group of the directory. Non-blocking.
Result<UniqueFd> ListenPackets(const std::string& directory, const std::string& name,
                               bool for_group = false);

// The next waiting connection. kUnavailable: there is none. kResourceExhausted: no descriptor or
// memory is left for it; it waits on, and the listening socket stays readable. kPermissionDenied:
// it came from another user than this one, root and `other_user`, and is refused.
Result<PacketSocket> AcceptPackets(int listen_fd, std::int64_t other_user = kNoOtherUser);

// kPermissionDenied: another user than this one, root and `other_user` listens there.
Result<PacketSocket> ConnectPackets(const std::string& directory, const std::string& name,
                                    std::int64_t other_user = kNoOtherUser);

struct BoundPort {
  UniqueFd fd;
  int port = 0;
};

struct TcpBindOptions {
  std::string address;  // numeric IPv4 or IPv6
  bool listen = true;   // false: the port is only reserved and refuses connections
};

// A TCP socket at a port that the kernel chooses. Without SO_REUSEADDR or SO_REUSEPORT, so that no
// other process can bind it while this descriptor is open.
Result<BoundPort> BindTcp(const TcpBindOptions& options);

}  // namespace muster
