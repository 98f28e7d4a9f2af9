#include "worker/service/secret_fetch.h"

#include <grpcpp/client_context.h>

#include "common/rpc/channel.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/token.h"
#include "muster/v1/secret_api.grpc.pb.h"

namespace muster::worker {

Result<RankSecrets> FetchSecretsOf(const CoordinatorSessionOptions& options, const JobId& job,
                                   Generation generation) {
  MUSTER_ASSIGN_OR_RETURN(const Endpoint endpoint,
                          FindCoordinator(*options.coordinators, options.endpoint_path));
  MUSTER_ASSIGN_OR_RETURN(const CoordinatorChannel coordinator,
                          OpenCoordinator(endpoint, options.tls_dir, options.token_path));
  v1::FetchSecretsRequest request;
  request.set_job(job.value);
  request.set_generation(generation);
  request.set_node(options.identity.node.value);
  grpc::ClientContext context;
  AttachToken(context, coordinator);
  context.set_deadline(SystemDeadline(kFetchLimit));
  context.set_wait_for_ready(true);
  v1::FetchSecretsResponse response;
  const grpc::Status status =
      v1::Secrets::NewStub(coordinator.channel)->FetchSecrets(&context, request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  RankSecrets secrets;
  for (v1::SecretValue& secret : *response.mutable_secrets()) {
    auto& to = secret.as_file() ? secrets.files : secrets.variables;
    to[secret.variable()] = std::move(*secret.mutable_value());
  }
  return secrets;
}

}  // namespace muster::worker
