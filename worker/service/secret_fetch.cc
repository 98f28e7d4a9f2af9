#include "worker/service/secret_fetch.h"

#include <grpcpp/client_context.h>

#include "common/base/backoff.h"
#include "common/rpc/channel.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/token.h"
#include "common/runtime/pause.h"
#include "muster/v1/secret_api.grpc.pb.h"

namespace muster::worker {
namespace {

Result<RankSecrets> FetchOnce(const CoordinatorSessionOptions& options,
                              const v1::FetchSecretsRequest& request, const Deadline& until) {
  // One that starts has no file yet.
  const auto endpoint = FindCoordinator(*options.coordinators, options.endpoint_path);
  if (!endpoint.ok()) return Unavailable(endpoint.status().message());
  MUSTER_ASSIGN_OR_RETURN(const CoordinatorChannel coordinator,
                          OpenCoordinator(*endpoint, options.tls_dir, options.token_path));
  grpc::ClientContext context;
  AttachToken(context, coordinator);
  context.set_deadline(SystemDeadline(until.Remaining()));
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

}  // namespace

// A coordinator that dies meanwhile is asked again when it is back: the job is to know nothing of
// it.
Result<RankSecrets> FetchSecretsOf(const CoordinatorSessionOptions& options, const JobId& job,
                                   Generation generation) {
  v1::FetchSecretsRequest request;
  request.set_job(job.value);
  request.set_generation(generation);
  request.set_node(options.identity.node.value);
  const Deadline until = Deadline::After(kFetchLimit);
  for (Backoff pauses(std::chrono::milliseconds(50), std::chrono::seconds(1));;) {
    auto fetched = FetchOnce(options, request, until);
    if (fetched.status().code() != StatusCode::kUnavailable || until.Expired()) return fetched;
    Pause(pauses.Next());
  }
}

}  // namespace muster::worker
