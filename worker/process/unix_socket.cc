#include "worker/process/unix_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace muster {
namespace {

// An address that stays valid for as long as `directory_fd` is open.
Result<sockaddr_un> AddressBelow(int directory_fd, const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(directory_fd) + "/" + name;
  if (path.size() >= sizeof address.sun_path) return InvalidArgument("socket name " + name);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Result<UniqueFd> OpenDirectory(const std::string& directory) {
  UniqueFd fd(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open directory " + directory);
  return fd;
}

Result<sockaddr_storage> ParseAddress(const std::string& text, socklen_t* length) {
  sockaddr_storage storage{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    *length = sizeof *v4;
  } else if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    *length = sizeof *v6;
  } else {
    return InvalidArgument("'" + text + "' is no numeric address of this node");
  }
  return storage;
}

// The kernel names the user of the other end: the one who connected, or who listened.
Status CheckPeer(const UniqueFd& fd, std::int64_t other_user) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return ErrnoStatus(errno, "SO_PEERCRED");
  if (peer.uid == ::geteuid() || peer.uid == 0 || peer.uid == other_user) return OkStatus();
  return PermissionDenied("a connection of user " + std::to_string(peer.uid) + " was refused");
}

}  // namespace

Result<UniqueFd> ListenPackets(const std::string& directory, const std::string& name,
                               bool for_group) {
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd directory_fd, OpenDirectory(directory));
  MUSTER_ASSIGN_OR_RETURN(const sockaddr_un address, AddressBelow(directory_fd.get(), name));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  ::unlinkat(directory_fd.get(), name.c_str(), 0);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return ErrnoStatus(errno, "bind " + directory + "/" + name);
  if (::fchmodat(directory_fd.get(), name.c_str(), for_group ? 0660 : 0600, 0) != 0)
    return ErrnoStatus(errno, "chmod " + directory + "/" + name);
  if (::listen(fd.get(), 8) != 0) return ErrnoStatus(errno, "listen on " + directory + "/" + name);
  return fd;
}

Result<PacketSocket> AcceptPackets(int listen_fd, std::int64_t other_user) {
  UniqueFd fd;
  do {
    fd.reset(::accept4(listen_fd, nullptr, nullptr, SOCK_CLOEXEC));
  } while (!fd.valid() && (errno == EINTR || errno == ECONNABORTED));
  if (!fd.valid() && (errno == EAGAIN || errno == EWOULDBLOCK))
    return Unavailable("no connection is waiting");
  if (!fd.valid()) return ResourceExhausted(ErrnoStatus(errno, "accept a connection").message());
  MUSTER_RETURN_IF_ERROR(CheckPeer(fd, other_user));
  return PacketSocket(std::move(fd));
}

Result<PacketSocket> ConnectPackets(const std::string& directory, const std::string& name,
                                    std::int64_t other_user) {
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd directory_fd, OpenDirectory(directory));
  MUSTER_ASSIGN_OR_RETURN(const sockaddr_un address, AddressBelow(directory_fd.get(), name));
  // A listener that accepts nothing, with a full queue, is no reason to wait.
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Unavailable(ErrnoStatus(errno, "connect to " + directory + "/" + name).message());
  MUSTER_RETURN_IF_ERROR(CheckPeer(fd, other_user));
  if (::fcntl(fd.get(), F_SETFL, 0) != 0) return ErrnoStatus(errno, "fcntl");
  return PacketSocket(std::move(fd));
}

Result<BoundPort> BindTcp(const TcpBindOptions& options) {
  socklen_t length = 0;
  MUSTER_ASSIGN_OR_RETURN(sockaddr_storage address, ParseAddress(options.address, &length));
  UniqueFd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd.get(), generic, length) != 0)
    return ErrnoStatus(errno, "bind a port at " + options.address);
  if (options.listen && ::listen(fd.get(), SOMAXCONN) != 0)
    return ErrnoStatus(errno, "listen at " + options.address);
  if (::getsockname(fd.get(), generic, &length) != 0) return ErrnoStatus(errno, "getsockname");
  const std::uint16_t port = address.ss_family == AF_INET
                                 ? reinterpret_cast<sockaddr_in*>(&address)->sin_port
                                 : reinterpret_cast<sockaddr_in6*>(&address)->sin6_port;
  return BoundPort{std::move(fd), ntohs(port)};
}

}  // namespace muster
