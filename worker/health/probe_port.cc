#include "worker/health/probe_port.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

namespace muster::worker {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

struct ProbePort::Impl : std::enable_shared_from_this<Impl> {
  explicit Impl(EventLoop& loop) : acceptor(loop.context()), retry(loop.context()) {}

  Status Bind(const std::string& address, std::uint16_t port) {
    ErrorCode error;
    tcp::resolver resolver(acceptor.get_executor());
    const auto found = resolver.resolve(address, std::to_string(port), error);
    if (error || found.empty())
      return InvalidArgument("'" + address + "' cannot be looked up: " + error.message());
    const tcp::endpoint endpoint = found.begin()->endpoint();
    if (acceptor.open(endpoint.protocol(), error) ||
        acceptor.set_option(tcp::acceptor::reuse_address(true), error) ||
        acceptor.bind(endpoint, error) ||
        acceptor.listen(asio::socket_base::max_listen_connections, error)) {
      const std::string what = "cannot listen for probes on " + address + ":" +
                               std::to_string(port) + ": " + error.message();
      return error == asio::error::address_in_use ? AlreadyExists(what) : Unavailable(what);
    }
    return OkStatus();
  }

  void Accept() {
    acceptor.async_accept([self = shared_from_this()](const ErrorCode& error, tcp::socket socket) {
      if (!self->acceptor.is_open()) return;
      if (!error) {
        ErrorCode ignored;
        socket.close(ignored);
        return self->Accept();
      }
      // Without descriptors accept fails at once, again and again; a pause keeps the loop usable.
      self->retry.expires_after(std::chrono::milliseconds(100));
      self->retry.async_wait([self](const ErrorCode& cancelled) {
        if (!cancelled && self->acceptor.is_open()) self->Accept();
      });
    });
  }

  tcp::acceptor acceptor;
  asio::steady_timer retry;
};

Result<std::unique_ptr<ProbePort>> ProbePort::Listen(EventLoop& loop, const std::string& address,
                                                     std::uint16_t port) {
  auto impl = std::make_shared<Impl>(loop);
  MUSTER_RETURN_IF_ERROR(impl->Bind(address, port));
  impl->Accept();
  return std::unique_ptr<ProbePort>(new ProbePort(std::move(impl)));
}

ProbePort::ProbePort(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

ProbePort::~ProbePort() {
  ErrorCode ignored;
  impl_->acceptor.close(ignored);
  impl_->retry.cancel();
}

std::uint16_t ProbePort::port() const { return impl_->acceptor.local_endpoint().port(); }

bool NeedsProbePort(const std::string& address) {
  return address != "127.0.0.1" && address != "localhost";
}

}  // namespace muster::worker
