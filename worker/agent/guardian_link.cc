#include "worker/agent/guardian_link.h"

#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <utility>

namespace muster::worker {
namespace {

// What one turn of the loop reads at most, so that a peer that sends without pause does not hold up
// all else. The next turn reads on.
constexpr int kPacketsPerTurn = 64;
constexpr std::size_t kBytesPerTurn = 2 * kMaxPacketBytes;

}  // namespace

struct GuardianLink::Impl : std::enable_shared_from_this<Impl> {
  Impl(EventLoop& loop, PacketSocket packets, Handlers on)
      : socket(std::move(packets)),
        descriptor(loop.context(), socket.fd()),
        handlers(std::move(on)) {}
  void Wait() {
    descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                          [self = shared_from_this()](const boost::system::error_code& error) {
                            if (error || self->closed) return;
                            self->ReadSome();
                            if (!self->closed) self->Wait();
                          });
  }

  void ReadSome() {
    const Deadline poll = Deadline::At({});
    std::size_t bytes = 0;
    for (int i = 0; i < kPacketsPerTurn && bytes < kBytesPerTurn && !closed; ++i) {
      auto packet = socket.Receive(poll);
      if (!packet.ok()) {
        if (packet.status().code() != StatusCode::kDeadlineExceeded) Close(packet.status());
        return;
      }
      bytes += packet->data.size();
      auto event = DecodeGuardianEvent(packet->data);
      // A newer guardian has sent it, and says with it at least that it lives.
      if (event.status().code() == StatusCode::kUnimplemented)
        event = GuardianEvent(GuardianAlive{});
      if (!event.ok()) return Close(event.status());
      handlers.on_event(*event, packet->fds.empty() ? UniqueFd() : std::move(packet->fds[0]));
    }
  }

  void Close(const Status& why) {
    if (closed) return;
    closed = true;
    handlers.on_closed(why);
  }

  PacketSocket socket;
  boost::asio::posix::stream_descriptor descriptor;
  Handlers handlers;
  bool closed = false;
};

GuardianLink::GuardianLink(EventLoop& loop, PacketSocket socket, Handlers handlers)
    : impl_(std::make_shared<Impl>(loop, std::move(socket), std::move(handlers))) {
  impl_->Wait();
}

GuardianLink::~GuardianLink() {
  // Handlers that wait on the descriptor may still hold Impl for a while; the connection ends now.
  impl_->closed = true;
  impl_->descriptor.release();
  impl_->socket.Close();
}

void GuardianLink::Send(const GuardianCommand& command, int descriptor) {
  if (impl_->closed) return;
  const std::vector<int> descriptors =
      descriptor >= 0 ? std::vector<int>{descriptor} : std::vector<int>{};
  // A failure appears as the end of the connection too: a shutdown wakes the reader.
  const Status status =
      impl_->socket.Send(Encode(command), descriptors, Deadline::After(std::chrono::seconds(1)));
  if (!status.ok()) ::shutdown(impl_->socket.fd(), SHUT_RDWR);
}

}  // namespace muster::worker
