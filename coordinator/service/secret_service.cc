#include "coordinator/service/secret_service.h"

#include <algorithm>
#include <utility>

#include "common/job_spec/queue_names.h"
#include "common/rpc/grpc_status.h"
#include "common/telemetry/log.h"

namespace muster {
namespace {

void FillSecret(const Reply& reply, v1::SecretResponse* response) {
  const auto* accepted = std::get_if<SecretAccepted>(&reply.body);
  if (accepted == nullptr) return;
  response->set_owner(accepted->secret.owner);
  response->set_queue(accepted->secret.queue);
  response->set_name(accepted->secret.name);
}

// A node's own ranks alone.
Status CheckRuns(const JobView& view, std::int64_t generation, const std::string& node) {
  const bool newest = view.attempts != nullptr && !view.attempts->empty() &&
                      view.attempts->back().generation == generation;
  const bool runs = newest && std::ranges::find(view.attempts->back().nodes, NodeName{node}) !=
                                  view.attempts->back().nodes.end();
  if (runs) return OkStatus();
  return FailedPrecondition("node " + node + " has no ranks of generation " +
                            std::to_string(generation) + " of job " + view.record->id.value);
}

}  // namespace

SecretService::Reactor* SecretService::SetSecret(Context* context,
                                                 const v1::SetSecretRequest* request,
                                                 v1::SecretResponse* response) {
  return parts_.calls.OnLoop(
      context, ClientOperation::kSetSecret, [this, request, response](const Call& call) {
        if (!parts_.calls.guard().PermitsIn(call, QueueName(request->queue()))) return;
        Result<SecretRecord> record = Encrypt(call, *request);
        if (!record.ok()) return call->End(record.status());
        parts_.calls.Ask(SecretSetRequested{.actor = call->actor(), .record = *std::move(record)},
                         call, [response](const Reply& reply) { FillSecret(reply, response); });
      });
}

Result<SecretRecord> SecretService::Encrypt(const Call& call, const v1::SetSecretRequest& request) {
  if (!FollowsNameRule(request.name()))
    return InvalidArgument("'" + request.name() +
                           "' is no name of a secret: " + std::string(kNameRule));
  if (request.value().empty()) return InvalidArgument("the value is empty");
  if (request.value().size() > kMaxValueBytes)
    return InvalidArgument("the value has more than 64 KiB");
  if (request.value().find('\0') != std::string::npos)
    return InvalidArgument("the value has a zero byte, which no variable can have");
  if (parts_.runtime.controller().Secrets().empty()) MUSTER_RETURN_IF_ERROR(vault_.MakeKeys());
  return vault_.Close(
      {call->actor().user(), std::string(QueueName(request.queue())), request.name()},
      request.value());
}

SecretService::Reactor* SecretService::ListSecrets(Context* context,
                                                   const v1::ListSecretsRequest* request,
                                                   v1::ListSecretsResponse* response) {
  return parts_.calls.OnLoop(
      context, ClientOperation::kListSecrets, [this, request, response](const Call& call) {
        const Controller& controller = parts_.runtime.controller();
        const Actor& actor = call->actor();
        if (request->all() && controller.access().ClusterRole(actor) < UserRole::kAdmin)
          return call->End(PermissionDenied("only an admin of the cluster lists secrets of all"));
        for (const auto& [secret, record] : controller.Secrets()) {
          if (!request->all() && secret.owner != actor.user()) continue;
          v1::Secret& to = *response->add_secrets();
          to.set_owner(secret.owner);
          to.set_queue(secret.queue);
          to.set_name(secret.name);
          to.set_updated_unix_ms(record.updated_unix_ms);
          to.set_updated_by(record.updated_by);
        }
        parts_.calls.EndOnceDurable(call);
      });
}

SecretService::Reactor* SecretService::RemoveSecret(Context* context,
                                                    const v1::RemoveSecretRequest* request,
                                                    v1::SecretResponse* response) {
  return parts_.calls.OnLoop(
      context, ClientOperation::kRemoveSecret, [this, request, response](const Call& call) {
        const std::string queue(QueueName(request->queue()));
        if (!parts_.calls.guard().PermitsIn(call, queue)) return;
        parts_.calls.Ask(
            SecretRemoveRequested{.actor = call->actor(),
                                  .secret = {call->actor().user(), queue, request->name()}},
            call, [response](const Reply& reply) { FillSecret(reply, response); });
      });
}

// The old keys go once no record in the store needs them.
SecretService::Reactor* SecretService::RotateSecretKey(Context* context,
                                                       const v1::RotateSecretKeyRequest*,
                                                       v1::RotateSecretKeyResponse* response) {
  return parts_.calls.OnLoop(
      context, ClientOperation::kRotateSecretKey, [this, response](const Call& call) {
        Result<SecretsRewrapRequested> event = Rewrap(call);
        if (!event.ok()) return call->End(event.status());
        parts_.runtime.Ask(*std::move(event), [this, call, response](const Reply& reply) {
          Status status = reply.status;
          if (status.ok()) status = vault_.DropOldKeys();
          const auto* done = std::get_if<SecretsRewrapped>(&reply.body);
          if (call->open() && done != nullptr) response->set_secrets(done->count);
          call->End(status);
        });
      });
}

Result<SecretsRewrapRequested> SecretService::Rewrap(const Call& call) {
  SecretsRewrapRequested event{.actor = call->actor()};
  const auto& secrets = parts_.runtime.controller().Secrets();
  if (secrets.empty()) return NotFound("there are no secrets; the first one makes the key");
  MUSTER_RETURN_IF_ERROR(vault_.AddKey());
  for (const auto& [secret, record] : secrets) {
    MUSTER_ASSIGN_OR_RETURN(SecretRecord next, vault_.Rewrap(record));
    event.records.push_back(std::move(next));
  }
  return event;
}

SecretService::Reactor* SecretService::FetchSecrets(Context* context,
                                                    const v1::FetchSecretsRequest* request,
                                                    v1::FetchSecretsResponse* response) {
  Reactor* reactor = context->DefaultReactor();
  const Result<std::string> node = parts_.authenticator.NodeOf(*context, request->node());
  if (!node.ok()) {
    reactor->Finish(ToGrpcStatus(node.status()));
    return reactor;
  }
  parts_.loop.Post([this, request = *request, response, reactor, node = *node,
                    peer = std::string(context->peer())] {
    Result<v1::FetchSecretsResponse> fetched = Fetch(request, node);
    if (!fetched.ok())
      Log().warn("node {} does not get the secrets of job {}: {}", node, request.job(),
                 fetched.status().message());
    RequestNoted note{.actor = {.name = "node/" + node, .peer = peer},
                      .operation = "FetchSecrets",
                      .object = "job " + request.job(),
                      .status = fetched.status()};
    parts_.runtime.Handle(
        std::move(note), [this, response, reactor, fetched = std::move(fetched)]() mutable {
          parts_.runtime.AfterDurable(
              [response, reactor, fetched = std::move(fetched)](const Status& durable) {
                const Status status = durable.ok() ? fetched.status() : durable;
                if (status.ok()) *response = *fetched;
                reactor->Finish(ToGrpcStatus(status));
              });
        });
  });
  return reactor;
}

Result<v1::FetchSecretsResponse> SecretService::Fetch(const v1::FetchSecretsRequest& request,
                                                      const std::string& node) {
  const Controller& controller = parts_.runtime.controller();
  MUSTER_ASSIGN_OR_RETURN(const JobView view, controller.FindJob(request.job()));
  MUSTER_RETURN_IF_ERROR(CheckRuns(view, request.generation(), node));
  MUSTER_ASSIGN_OR_RETURN(const auto secrets, controller.SecretsOf(view));
  v1::FetchSecretsResponse response;
  for (const auto& [use, record] : secrets) {
    MUSTER_ASSIGN_OR_RETURN(std::string value, vault_.Open(record));
    v1::SecretValue& to = *response.add_secrets();
    to.set_variable(use.variable);
    to.set_as_file(use.as_file);
    to.set_value(std::move(value));
  }
  return response;
}

}  // namespace muster
