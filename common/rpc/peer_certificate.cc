#include "common/rpc/peer_certificate.h"

#include <grpc/grpc_security_constants.h>

#include <string>
#include <string_view>
#include <vector>

namespace muster {
namespace {

std::string_view FirstProperty(const grpc::AuthContext& context, const std::string& name) {
  const std::vector<grpc::string_ref> values = context.FindPropertyValues(name);
  return values.empty() ? std::string_view()
                        : std::string_view(values.front().data(), values.front().size());
}

}  // namespace

bool IsTls(const grpc::AuthContext& context) {
  return FirstProperty(context, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME) ==
         GRPC_TLS_TRANSPORT_SECURITY_TYPE;
}

bool HasCertificate(const grpc::AuthContext& context) { return !CertificateText(context).empty(); }

std::string_view CertificateText(const grpc::AuthContext& context) {
  return FirstProperty(context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
}

std::optional<CertificateInfo> PeerCertificate(const grpc::AuthContext& context) {
  const std::string_view pem = CertificateText(context);
  if (pem.empty()) return std::nullopt;
  const Result<CertificateInfo> info = ReadCertificate(std::string(pem));
  if (!info.ok()) return std::nullopt;
  return *info;
}

}  // namespace muster
