// SecretService: users store secrets, and nodes fetch those of the jobs that they run
// (docs/secrets.md). Values are encrypted before the controller has them, and opened for a node
// that has ranks of the job; each fetch is in the audit trail before it is answered, and refused
// ones are there as RefusalLog has them.
//
// Owned by the server. gRPC's threads call the RPC functions, which post; the rest runs on the
// loop's thread.
#pragma once

#include <memory>
#include <string>

#include "coordinator/service/client_calls.h"
#include "coordinator/service/refusal_log.h"
#include "coordinator/service/secret_vault.h"
#include "muster/v1/secret_api.grpc.pb.h"

namespace muster {

class SecretService final : public v1::Secrets::CallbackService {
 public:
  static constexpr std::size_t kMaxValueBytes = 64 << 10;

  struct Parts {
    EventLoop& loop;
    ControllerRuntime& runtime;
    const Authenticator& authenticator;
    ClientCalls& calls;
    RefusalLog& refusals;
  };
  SecretService(Parts parts, SecretVault vault) : parts_(parts), vault_(std::move(vault)) {}

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* SetSecret(Context*, const v1::SetSecretRequest*, v1::SecretResponse*) override;
  Reactor* ListSecrets(Context*, const v1::ListSecretsRequest*, v1::ListSecretsResponse*) override;
  Reactor* RemoveSecret(Context*, const v1::RemoveSecretRequest*, v1::SecretResponse*) override;
  Reactor* RotateSecretKey(Context*, const v1::RotateSecretKeyRequest*,
                           v1::RotateSecretKeyResponse*) override;
  Reactor* FetchSecrets(Context*, const v1::FetchSecretsRequest*,
                        v1::FetchSecretsResponse*) override;

 private:
  using Call = ClientCalls::Call;
  struct FetchCall;

  Result<SecretRecord> Encrypt(const Call& call, const v1::SetSecretRequest& request);
  Result<SecretsRewrapRequested> Rewrap(const Call& call);
  Status DropOldKeys();
  void StartFetch(const std::shared_ptr<FetchCall>& call);
  Result<v1::FetchSecretsResponse> Fetch(const v1::FetchSecretsRequest& request,
                                         const std::string& node);

  Parts parts_;
  SecretVault vault_;
  bool rotating_ = false;  // a rotation's records are not stored yet
};

}  // namespace muster
