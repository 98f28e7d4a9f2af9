// TlsContext: what an HTTP server's handshakes stand on: TLS 1.3 alone, and a certificate of the
// cluster's authority from everybody who connects. Follows its credentials directory: handshakes
// after a renewal use what is there then.
//
// Owned by a server, loop's thread. Current looks at three small files once a second at most.
// Private to this folder.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream_base.hpp>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/security/certificate.h"
#include "common/security/credentials.h"

namespace muster {

class TlsContext {
 public:
  // kFailedPrecondition where the certificate has expired, and as LoadCredentials.
  static Result<std::unique_ptr<TlsContext>> Open(const std::string& credentials_dir);

  // The newest that could be loaded. Files that cannot be are said in the log once and tried again.
  std::shared_ptr<boost::asio::ssl::context> Current(TimePoint now);

 private:
  explicit TlsContext(std::string dir) : dir_(std::move(dir)) {}
  Status Load();

  const std::string dir_;
  CredentialsStamp stamp_;
  TimePoint looked_;
  std::string last_problem_;
  std::shared_ptr<boost::asio::ssl::context> context_;
};

// Of who is at the other end of a connection whose handshake has succeeded.
Result<CertificateInfo> PeerCertificate(SSL* ssl);

}  // namespace muster
