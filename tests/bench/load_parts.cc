#include "tests/bench/load_parts.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/base/clock.h"
#include "common/base/cluster_paths.h"
#include "common/security/certificate_authority.h"
#include "common/security/certificate_request.h"
#include "common/security/credentials.h"

namespace muster {

void Fail(const std::string& why) {
  std::fprintf(stderr, "load: %s\n", why.c_str());
  std::_Exit(EXIT_FAILURE);
}

void Ending::Begin() {
  std::lock_guard lock(mutex_);
  begun_ = true;
  changed_.notify_all();
}

bool Ending::BegunBy(TimePoint when) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, when, [this] { return begun_; });
}

double SecondsSince(TimePoint start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string NodeText(int n) { return "node-" + std::to_string(n); }

void IssueCertificates(const std::string& dir, const std::string& credentials, int nodes) {
  const auto authority = CertificateAuthority::Open(ClusterPaths{dir}.Security().dir);
  if (!authority.ok()) Fail(authority.status().message());
  const std::int64_t now_ms = SystemClock().UnixMillis();
  std::vector<std::string> certificates;
  for (int n = 0; n < nodes; ++n) {
    const Identity identity{Role::kNode, NodeText(n), authority->cluster()};
    const auto request = MakeCertificateRequest(identity);
    if (!request.ok()) Fail(request.status().message());
    const auto certificate =
        authority->SignUnrecorded(request->csr_pem, identity, DefaultLifetime(Role::kNode), now_ms);
    if (!certificate.ok()) Fail(certificate.status().message());
    certificates.push_back(*certificate);
    const CredentialFiles files{authority->certificate_pem(), *certificate, request->key_pem};
    const Status written = WriteCredentials(credentials + "/" + NodeText(n), files);
    if (!written.ok()) Fail(written.message());
  }
  if (const Status status = authority->Record(certificates, now_ms); !status.ok())
    Fail(status.message());
}

}  // namespace muster
