// TlsContext: what an HTTP server's handshakes stand on: TLS 1.3 alone, and a certificate of the
// cluster's authority from every client, or from those that show one. Follows its files:
// handshakes after a renewal use what is there then.
//
// With a certificate of the site's, the name that a client asks for (SNI) decides which one it is
// shown: for the site's names the site's, for `coordinator.muster`, any other and none the
// cluster's. So one port serves both those who trust ca.pem, who all ask for coordinator.muster or
// compare no name, and browsers, who ask for what is in their address bar. A second port would do
// as well, but would be a second address of each page, of redirects and in firewalls. By an IP
// address a browser asks for no name, and gets the cluster's. Clients' certificates are the
// cluster's either way.
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
#include "common/security/site_certificate.h"

namespace muster {

class TlsContext {
 public:
  static constexpr Duration kLookInterval = std::chrono::seconds(1);

  struct Files {
    std::string credentials_dir;
    SiteCertificateFiles site = {};
  };
  // kFailedPrecondition where a certificate has expired, and as LoadCredentials and
  // SiteCertificate::Load.
  enum class Clients { kHaveCertificates, kMayHaveCertificates };
  static Result<std::unique_ptr<TlsContext>> Open(Files files,
                                                  Clients clients = Clients::kHaveCertificates,
                                                  Duration look_interval = kLookInterval);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // The newest that could be loaded. Files that cannot be are said in the log once and tried again.
  std::shared_ptr<boost::asio::ssl::context> Current() const;

 private:
  struct SiteStamp {
    FileStamp chain;
    FileStamp key;
    friend bool operator==(const SiteStamp&, const SiteStamp&) = default;
  };

  TlsContext(Files files, Clients clients) : files_(std::move(files)), clients_(clients) {}
  Status Look();
  Status LookAtCredentials();
  Status LookAtSite();
  Status Replace();
  void Follow(Duration look_interval);

  const Files files_;
  const Clients clients_;
  // The thread's: what is in use, and which version of the files it is.
  Credentials credentials_;
  CredentialsStamp credentials_stamp_;
  std::optional<SiteCertificate> site_;
  SiteStamp site_stamp_;
  bool replaced_ = false;  // since the last context was made
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
