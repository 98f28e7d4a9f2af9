#include "common/control_pipe/packet_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace muster {
namespace {

// Waits until `events` are there; OK, kDeadlineExceeded or the error of poll.
Status WaitFor(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int n = ::poll(&entry, 1, static_cast<int>(deadline.RemainingMillis().count()));
    if (n > 0) return OkStatus();
    if (n == 0) return DeadlineExceeded("no message within the deadline");
    if (errno != EINTR) return ErrnoStatus(errno, "poll");
  }
}

}  // namespace

Result<std::pair<PacketSocket, PacketSocket>> PacketSocket::Pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
    return ErrnoStatus(errno, "socketpair");
  return std::pair{PacketSocket(UniqueFd(fds[0])), PacketSocket(UniqueFd(fds[1]))};
}

Status PacketSocket::Send(std::string_view data, const std::vector<int>& fds, Deadline deadline) {
  if (data.size() > kMaxPacketBytes)
    return ResourceExhausted("a control message of " + std::to_string(data.size()) +
                             " bytes; at most " + std::to_string(kMaxPacketBytes) + " are allowed");
  MUSTER_CHECK(fds.size() <= kMaxPacketFds, "too many descriptors in one message");
  iovec part{const_cast<char*>(data.data()), data.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPacketFds)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  for (;;) {
    if (::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return OkStatus();
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      const Status status = ErrnoStatus(errno, "send a control message");
      return Unavailable(status.message());
    }
    MUSTER_RETURN_IF_ERROR(WaitFor(fd_.get(), POLLOUT, deadline));
  }
}

Result<Packet> PacketSocket::Receive(Deadline deadline) {
  thread_local std::string buffer(kMaxPacketBytes, '\0');
  for (;;) {
    iovec part{buffer.data(), buffer.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPacketFds)] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      MUSTER_RETURN_IF_ERROR(WaitFor(fd_.get(), POLLIN, deadline));
      continue;
    }
    if (n < 0) return Unavailable(ErrnoStatus(errno, "receive a control message").message());
    if (n == 0) return Unavailable("the peer closed the control socket");
    Packet packet;
    packet.data.assign(buffer.data(), static_cast<std::size_t>(n));
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
        packet.fds.emplace_back(fd);
      }
    }
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
      return DataLoss("a control message was larger than this program accepts");
    return packet;
  }
}

}  // namespace muster
