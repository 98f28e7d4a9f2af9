// One GET over TLS with the credentials of a directory, as a scraper would do it. Tests only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "common/security/credentials.h"

namespace muster {

struct HttpsOptions {
  std::string credentials_dir;                  // the client's, with the authority it trusts
  bool with_certificate = true;                 // false: it shows none
  std::string server = kCoordinatorServerName;  // who the server must be
  bool asks_by_name = false;                    // says so before the server shows who it is (SNI)
  std::string authority_pem;                    // trusted in place of the credentials'
  boost::asio::ssl::context::method method = boost::asio::ssl::context::tls_client;
};

// A connection whose handshake is done, or that has no stream. One thread; blocks.
struct HttpsConnection {
  using Stream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;

  HttpsConnection(const std::string& host, std::uint16_t port, const HttpsOptions& options)
      : context(options.method) {
    namespace ssl = boost::asio::ssl;
    const Result<Credentials> credentials = LoadCredentials(options.credentials_dir);
    if (!credentials.ok()) return;
    context.add_certificate_authority(boost::asio::buffer(
        options.authority_pem.empty() ? credentials->ca_pem : options.authority_pem));
    if (options.with_certificate) {
      context.use_certificate_chain(boost::asio::buffer(credentials->cert_pem));
      context.use_private_key(boost::asio::buffer(credentials->key_pem), ssl::context::pem);
    }
    context.set_verify_mode(ssl::verify_peer);
    context.set_verify_callback(ssl::host_name_verification(options.server));
    stream.emplace(io, context);
    if (options.asks_by_name)
      SSL_set_tlsext_host_name(stream->native_handle(), options.server.c_str());
    boost::system::error_code error;
    stream->lowest_layer().connect({boost::asio::ip::make_address(host), port}, error);
    if (!error) stream->handshake(ssl::stream_base::client, error);
    if (error) stream.reset();
  }

  boost::asio::io_context io;
  boost::asio::ssl::context context;
  std::optional<Stream> stream;
};

// The answer, head and body; "" when there is none, because the other side has hung up or is not
// who it should be. Blocks.
inline std::string HttpsGet(const std::string& host, std::uint16_t port, const std::string& path,
                            const HttpsOptions& options) {
  HttpsConnection connection(host, port, options);
  if (!connection.stream) return "";
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: muster\r\nConnection: close\r\n\r\n";
  boost::system::error_code error;
  boost::asio::write(*connection.stream, boost::asio::buffer(request), error);
  if (error) return "";
  std::string answer;
  boost::asio::read(*connection.stream, boost::asio::dynamic_buffer(answer), error);
  return answer;
}

// The head of the answer to a HEAD on a connection that is there and stays; "" when there is none.
inline std::string HttpsHead(HttpsConnection& connection, const std::string& path) {
  boost::system::error_code error;
  boost::asio::write(*connection.stream,
                     boost::asio::buffer("HEAD " + path + " HTTP/1.1\r\nHost: muster\r\n\r\n"),
                     error);
  std::string answer;
  if (!error)
    boost::asio::read_until(*connection.stream, boost::asio::dynamic_buffer(answer), "\r\n\r\n",
                            error);
  return error ? "" : answer;
}

}  // namespace muster
