// Who is at the other end of a call, as TLS has verified it.
//
// Free functions over what gRPC knows of a connection; any thread.
#pragma once

#include <grpcpp/security/auth_context.h>

#include <optional>
#include <string_view>

#include "common/security/certificate.h"

namespace muster {

bool IsTls(const grpc::AuthContext& context);

// Whether the caller has shown a certificate at all, of whatever content.
bool HasCertificate(const grpc::AuthContext& context);
// That certificate as PEM; empty: there is none. Valid as long as the context.
std::string_view CertificateText(const grpc::AuthContext& context);

// What the caller's certificate says; nothing where there is none, or where it is not one of a
// Muster authority.
std::optional<CertificateInfo> PeerCertificate(const grpc::AuthContext& context);

}  // namespace muster
