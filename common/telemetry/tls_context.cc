#include "common/telemetry/tls_context.h"

#include <pthread.h>

#include <boost/asio/buffer.hpp>
#include <string_view>
#include <utility>

#include "common/security/identity.h"
#include "common/telemetry/log.h"

namespace muster {

namespace ssl = boost::asio::ssl;

namespace {

// What a server shows, and the authority of its clients.
struct Shown {
  const std::string& chain_pem;
  const std::string& key_pem;
  const std::string& clients_pem;
};

Status Fill(ssl::context& context, const Shown& shown, TlsContext::Clients clients) {
  boost::system::error_code error;
  const auto buffer = [](const std::string& pem) { return boost::asio::buffer(pem); };
  SSL_CTX* native = context.native_handle();
  const ssl::verify_mode verify = clients == TlsContext::Clients::kHaveCertificates
                                      ? ssl::verify_peer | ssl::verify_fail_if_no_peer_cert
                                      : ssl::verify_peer;
  const bool ok = SSL_CTX_set_min_proto_version(native, TLS1_3_VERSION) == 1 &&
                  !context.use_certificate_chain(buffer(shown.chain_pem), error) &&
                  !context.use_private_key(buffer(shown.key_pem), ssl::context::pem, error) &&
                  !context.add_certificate_authority(buffer(shown.clients_pem), error) &&
                  !context.set_verify_mode(verify, error);
  if (!ok) return Internal("the certificate cannot be used: " + error.message());
  // Each connection shows its certificate anew; a scraper keeps its connection anyway.
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(native, 0);
  return OkStatus();
}

struct Contexts {
  ssl::context cluster{ssl::context::tls_server};
  ssl::context site{ssl::context::tls_server};
  SiteCertificate names;
};

// OpenSSL calls it in a handshake before a certificate is shown. The authority of clients is the
// same in both.
int ChooseByName(SSL* ssl, int* /*alert*/, void* of) {
  auto& contexts = *static_cast<Contexts*>(of);
  const char* host = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
  if (host == nullptr || std::string_view(host) == kCoordinatorServerName ||
      !contexts.names.IsFor(host))
    return SSL_TLSEXT_ERR_NOACK;
  SSL_set_SSL_CTX(ssl, contexts.site.native_handle());
  return SSL_TLSEXT_ERR_OK;
}

Result<std::shared_ptr<ssl::context>> MakeContext(const Credentials& credentials,
                                                  const std::optional<SiteCertificate>& site,
                                                  TlsContext::Clients clients) {
  auto contexts = std::make_shared<Contexts>();
  MUSTER_RETURN_IF_ERROR(Fill(
      contexts->cluster, {credentials.cert_pem, credentials.key_pem, credentials.ca_pem}, clients));
  if (site) {
    MUSTER_RETURN_IF_ERROR(
        Fill(contexts->site, {site->chain_pem, site->key_pem, credentials.ca_pem}, clients));
    contexts->names = *site;
    SSL_CTX* native = contexts->cluster.native_handle();
    SSL_CTX_set_tlsext_servername_callback(native, &ChooseByName);
    SSL_CTX_set_tlsext_servername_arg(native, contexts.get());
  }
  // Both live as long as a connection that began with them.
  return std::shared_ptr<ssl::context>(contexts, &contexts->cluster);
}

}  // namespace

Result<std::unique_ptr<TlsContext>> TlsContext::Open(Files files, Clients clients,
                                                     Duration look_interval) {
  std::unique_ptr<TlsContext> context(new TlsContext(std::move(files), clients));
  MUSTER_RETURN_IF_ERROR(context->Look());
  context->thread_ =
      std::thread([self = context.get(), look_interval] { self->Follow(look_interval); });
  return context;
}

TlsContext::~TlsContext() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// What is wrong with one of the two keeps no renewal of the other from use.
Status TlsContext::Look() {
  const Status credentials = LookAtCredentials();
  const Status site = LookAtSite();
  if (replaced_) MUSTER_RETURN_IF_ERROR(Replace());
  return credentials.ok() ? site : credentials;
}

// A stamp counts once its files are in use: what puts them right (a chmod) need not change it.
Status TlsContext::LookAtCredentials() {
  const CredentialsStamp stamp = StampOfCredentials(files_.credentials_dir);
  if (!credentials_.cert_pem.empty() && stamp == credentials_stamp_) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(Credentials found, LoadCredentials(files_.credentials_dir));
  MUSTER_RETURN_IF_ERROR(CheckNotExpired(found, SystemClock().UnixMillis()));
  credentials_ = std::move(found);
  credentials_stamp_ = stamp;
  replaced_ = true;
  return OkStatus();
}

Status TlsContext::LookAtSite() {
  if (files_.site.chain.empty()) return OkStatus();
  const std::int64_t now_ms = SystemClock().UnixMillis();
  const SiteStamp stamp{StampOf(files_.site.chain), StampOf(files_.site.key)};
  if (site_ && stamp == site_stamp_) {
    if (now_ms < site_->not_after_ms) return OkStatus();
    return FailedPrecondition("the certificate " + files_.site.chain + " has expired");
  }
  MUSTER_ASSIGN_OR_RETURN(site_, SiteCertificate::Load(files_.site, now_ms));
  site_stamp_ = stamp;
  replaced_ = true;
  return OkStatus();
}

Status TlsContext::Replace() {
  if (credentials_.cert_pem.empty()) return OkStatus();  // at the start, where they cannot be read
  MUSTER_ASSIGN_OR_RETURN(std::shared_ptr<ssl::context> made,
                          MakeContext(credentials_, site_, clients_));
  replaced_ = false;
  const std::lock_guard lock(mutex_);
  context_ = std::move(made);
  return OkStatus();
}

void TlsContext::Follow(Duration look_interval) {
  ::pthread_setname_np(::pthread_self(), "tls-files");
  std::string last_problem;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, look_interval, [this] { return stopping_; })) {
    lock.unlock();
    const Status status = Look();
    if (!status.ok() && status.message() != last_problem)
      Log().error("HTTP goes on with the certificate it had: {}", status.message());
    last_problem = status.message();
    lock.lock();
  }
}

std::shared_ptr<ssl::context> TlsContext::Current() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

Result<std::optional<CertificateInfo>> PeerCertificate(SSL* ssl) {
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(SSL_get1_peer_certificate(ssl),
                                                                &X509_free);
  if (!certificate) return std::optional<CertificateInfo>();
  const std::unique_ptr<BIO, decltype(&BIO_free)> memory(BIO_new(BIO_s_mem()), &BIO_free);
  if (!memory || PEM_write_bio_X509(memory.get(), certificate.get()) != 1)
    return Unauthenticated("the peer's certificate cannot be read");
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  MUSTER_ASSIGN_OR_RETURN(CertificateInfo info,
                          ReadCertificate(std::string(data, static_cast<std::size_t>(size))));
  return std::optional<CertificateInfo>(std::move(info));
}

}  // namespace muster
