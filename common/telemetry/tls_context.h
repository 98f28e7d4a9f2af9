// TlsContext: what an HTTP server's handshakes stand on: TLS 1.3 alone, and a certificate of the
// cluster's authority from every client, or from those that show one. Follows its credentials
// directory: handshakes after a renewal use what is there then.
//
// Owned by a server. The files are looked at each second on a thread of its own, since their disk
// may be a network's that does not answer; the destructor waits for it. Current: any thread, never
// blocks. Private to this folder.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream_base.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/security/certificate.h"
#include "common/security/credentials.h"

namespace muster {

class TlsContext {
 public:
  static constexpr Duration kLookInterval = std::chrono::seconds(1);

  // kFailedPrecondition where the certificate has expired, and as LoadCredentials.
  enum class Clients { kHaveCertificates, kMayHaveCertificates };
  static Result<std::unique_ptr<TlsContext>> Open(const std::string& credentials_dir,
                                                  Clients clients = Clients::kHaveCertificates,
                                                  Duration look_interval = kLookInterval);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // The newest that could be loaded. Files that cannot be are said in the log once and tried again.
  std::shared_ptr<boost::asio::ssl::context> Current() const;

 private:
  TlsContext(std::string dir, Clients clients) : dir_(std::move(dir)), clients_(clients) {}
  Status Load();
  void Follow(Duration look_interval);

  const std::string dir_;
  const Clients clients_;
  CredentialsStamp stamp_;  // the thread's
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::shared_ptr<boost::asio::ssl::context> context_;
  std::thread thread_;
};

// The identity at the other end of a connection whose handshake has succeeded; none: it has shown
// no certificate.
Result<std::optional<CertificateInfo>> PeerCertificate(SSL* ssl);

}  // namespace muster
