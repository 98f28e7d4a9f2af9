#include "common/telemetry/http_connection.h"

#include <utility>

namespace muster {

HttpConnection::HttpConnection(tcp::socket socket, std::shared_ptr<asio::ssl::context> context)
    : context_(std::move(context)), stream_(std::in_place_type<Plain>, std::move(socket)) {
  if (context_) {
    tcp::socket again = std::get<Plain>(stream_).release_socket();
    stream_.emplace<Tls>(std::move(again), *context_);
  }
}

HttpConnection::Plain& HttpConnection::Lowest() {
  if (auto* tls = std::get_if<Tls>(&stream_)) return tls->next_layer();
  return std::get<Plain>(stream_);
}

SSL* HttpConnection::tls() {
  auto* tls = std::get_if<Tls>(&stream_);
  return tls == nullptr ? nullptr : tls->native_handle();
}

std::string HttpConnection::PeerAddress() {
  beast::error_code error;
  const tcp::endpoint peer = Lowest().socket().remote_endpoint(error);
  if (error) return "";
  const std::string address = peer.address().to_string();
  const std::string port = ":" + std::to_string(peer.port());
  return peer.address().is_v6() ? "ipv6:[" + address + "]" + port : "ipv4:" + address + port;
}

void HttpConnection::Handshake(Done done) {
  std::get<Tls>(stream_).async_handshake(
      asio::ssl::stream_base::server,
      [done = std::move(done)](beast::error_code error) { done(error, 0); });
}

void HttpConnection::ReadSome(asio::mutable_buffer into, Done done) {
  std::visit([&](auto& stream) { stream.async_read_some(into, std::move(done)); }, stream_);
}

void HttpConnection::Write(asio::const_buffer bytes, Done done) {
  std::visit([&](auto& stream) { asio::async_write(stream, bytes, std::move(done)); }, stream_);
}

void HttpConnection::HangUp(Done done) {
  auto* tls = std::get_if<Tls>(&stream_);
  if (tls == nullptr) return Close();
  SSL_set_shutdown(tls->native_handle(), SSL_RECEIVED_SHUTDOWN);
  tls->async_shutdown([done = std::move(done)](beast::error_code error) { done(error, 0); });
}

}  // namespace muster
