#include "common/telemetry/tls_context.h"

#include <pthread.h>

#include <boost/asio/buffer.hpp>
#include <utility>

#include "common/telemetry/log.h"

namespace muster {

namespace ssl = boost::asio::ssl;

namespace {

Result<std::shared_ptr<ssl::context>> MakeContext(const Credentials& credentials,
                                                  TlsContext::Clients clients) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  boost::system::error_code error;
  const auto buffer = [](const std::string& pem) { return boost::asio::buffer(pem); };
  SSL_CTX* native = context->native_handle();
  const ssl::verify_mode verify = clients == TlsContext::Clients::kHaveCertificates
                                      ? ssl::verify_peer | ssl::verify_fail_if_no_peer_cert
                                      : ssl::verify_peer;
  const bool ok =
      SSL_CTX_set_min_proto_version(native, TLS1_3_VERSION) == 1 &&
      !context->use_certificate_chain(buffer(credentials.cert_pem), error) &&
      !context->use_private_key(buffer(credentials.key_pem), ssl::context::pem, error) &&
      !context->add_certificate_authority(buffer(credentials.ca_pem), error) &&
      !context->set_verify_mode(verify, error);
  if (!ok) return Internal("the certificate cannot be used: " + error.message());
  // Each connection shows its certificate anew; a scraper keeps its connection anyway.
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(native, 0);
  return context;
}

}  // namespace

Result<std::unique_ptr<TlsContext>> TlsContext::Open(const std::string& credentials_dir,
                                                     Clients clients, Duration look_interval) {
  std::unique_ptr<TlsContext> context(new TlsContext(credentials_dir, clients));
  MUSTER_RETURN_IF_ERROR(context->Load());
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

Status TlsContext::Load() {
  const CredentialsStamp stamp = StampOfCredentials(dir_);
  MUSTER_ASSIGN_OR_RETURN(const Credentials credentials, LoadCredentials(dir_));
  MUSTER_RETURN_IF_ERROR(CheckNotExpired(credentials, SystemClock().UnixMillis()));
  MUSTER_ASSIGN_OR_RETURN(std::shared_ptr<ssl::context> made, MakeContext(credentials, clients_));
  // Not before: what puts the files right (a chmod) need not change their stamps.
  stamp_ = stamp;
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
    const Status status = StampOfCredentials(dir_) == stamp_ ? OkStatus() : Load();
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
