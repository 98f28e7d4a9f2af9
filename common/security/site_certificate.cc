#include "common/security/site_certificate.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "common/base/files.h"
#include "common/base/wall_time.h"
#include "common/security/pem.h"

namespace muster {
namespace {

constexpr std::int64_t kMaxBytes = 64 << 10;

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return text;
}

Status CheckKeyFile(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "private key " + path);
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    return PermissionDenied("private key " + path + " belongs to user " +
                            std::to_string(info.st_uid) + "; type: chown " +
                            std::to_string(::geteuid()) + " " + path);
  if ((info.st_mode & 027) != 0)
    return PermissionDenied("private key " + path +
                            " may be read by others or changed by its group; type: chmod o=,g-w " +
                            path);
  return OkStatus();
}

std::int64_t UnixMs(const ASN1_TIME* time) {
  tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? std::int64_t{::timegm(&parts)} * 1000 : 0;
}

std::vector<std::string> DnsNames(X509* certificate) {
  const GeneralNamesPtr all(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> names;
  for (int i = 0; i < (all ? sk_GENERAL_NAME_num(all.get()) : 0); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(all.get(), i);
    if (name->type != GEN_DNS) continue;
    const auto* data = reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName));
    names.push_back(Lower({data, static_cast<std::size_t>(ASN1_STRING_length(name->d.dNSName))}));
  }
  return names;
}

// Browsers build no other order, and do not fetch what is missing in between.
bool EachSignsTheOneBefore(const std::vector<X509Ptr>& chain) {
  return std::ranges::adjacent_find(chain, [](const X509Ptr& one, const X509Ptr& next) {
           return X509_verify(one.get(), X509_get0_pubkey(next.get())) != 1;
         }) == chain.end();
}

Status CheckForBrowsers(const std::vector<X509Ptr>& chain, const std::vector<std::string>& names,
                        std::int64_t now_ms) {
  X509* const leaf = chain.front().get();
  const std::int64_t from_ms = UnixMs(X509_get0_notBefore(leaf));
  const std::int64_t until_ms = UnixMs(X509_get0_notAfter(leaf));
  if (now_ms >= until_ms) return FailedPrecondition("expired at " + UtcTime(until_ms));
  if (now_ms < from_ms) return FailedPrecondition("is not valid before " + UtcTime(from_ms));
  if (X509_check_purpose(leaf, X509_PURPOSE_SSL_SERVER, 0) != 1)
    return FailedPrecondition("is not for servers (key usage)");
  if (names.empty())
    return FailedPrecondition("names no host (DNS name), by which a browser could know it");
  if (!EachSignsTheOneBefore(chain))
    return FailedPrecondition(
        "is followed by one that has not signed it; the server's own comes first, then who signed "
        "it");
  return OkStatus();
}

}  // namespace

Result<SiteCertificate> SiteCertificate::Load(const SiteCertificateFiles& files,
                                              std::int64_t now_ms) {
  MUSTER_RETURN_IF_ERROR(CheckKeyFile(files.key));
  SiteCertificate out;
  MUSTER_ASSIGN_OR_RETURN(out.chain_pem, ReadFile(files.chain, kMaxBytes));
  MUSTER_ASSIGN_OR_RETURN(out.key_pem, ReadFile(files.key, kMaxBytes));
  const auto chain = CertificatesFromPem(out.chain_pem);
  if (!chain.ok()) return chain.status().WithContext(files.chain);
  const auto key = PrivateKeyFromPem(out.key_pem);
  if (!key.ok()) return key.status().WithContext(files.key);
  const OpenSslErrors errors;
  X509* const leaf = chain->front().get();
  if (X509_check_private_key(leaf, key->get()) != 1)
    return FailedPrecondition("the private key in " + files.key + " is not that of " + files.chain);
  out.names = DnsNames(leaf);
  out.not_after_ms = UnixMs(X509_get0_notAfter(leaf));
  const Status good = CheckForBrowsers(*chain, out.names, now_ms);
  if (!good.ok())
    return FailedPrecondition("the certificate " + files.chain + " " + good.message());
  return out;
}

bool SiteCertificate::IsFor(std::string host) const {
  host = Lower(std::move(host));
  const auto dot = host.find('.');
  const std::string wildcard = dot == std::string::npos ? host : "*" + host.substr(dot);
  return std::ranges::any_of(
      names, [&](const std::string& name) { return name == host || name == wildcard; });
}

}  // namespace muster
