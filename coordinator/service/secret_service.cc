#include "coordinator/service/secret_service.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/failpoint.h"
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

// A node's own ranks alone, while there are any.
Status CheckRuns(const JobView& view, std::int64_t generation, const std::string& node) {
  const bool begun = view.attempts != nullptr && !view.attempts->empty();
  if (begun && !IsTerminal(view.record->state)) {
    const AttemptRecord& newest = view.attempts->back();
    const bool goes_on = newest.state != AttemptState::kEnded && newest.ended_unix_ms == 0;
    if (newest.generation == generation && goes_on &&
        std::ranges::find(newest.nodes, NodeName{node}) != newest.nodes.end())
      return OkStatus();
  }
  return FailedPrecondition("node " + node + " has no ranks of generation " +
                            std::to_string(generation) + " of job " + view.record->id.value);
}

}  // namespace

// A fetch that is under way. Whatever is dropped with it, as a closed runtime drops its events,
// ends it.
struct SecretService::FetchCall {
  ~FetchCall() { End(Unavailable("the coordinator is shutting down")); }
  void End(const Status& status) {
    if (Reactor* open = std::exchange(reactor, nullptr)) open->Finish(ToGrpcStatus(status));
  }

  v1::FetchSecretsRequest request;
  std::string node;
  std::string peer;
  v1::FetchSecretsResponse* response = nullptr;
  Reactor* reactor = nullptr;
};

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
  Failpoint("secrets.key_made");
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

// One at a time: an older key goes once the records that were encrypted anew are stored.
SecretService::Reactor* SecretService::RotateSecretKey(Context* context,
                                                       const v1::RotateSecretKeyRequest*,
                                                       v1::RotateSecretKeyResponse* response) {
  return parts_.calls.OnLoop(
      context, ClientOperation::kRotateSecretKey, [this, response](const Call& call) {
        if (rotating_)
          return call->End(FailedPrecondition(
              "another rotation is under way: nothing was changed\n  next: the same command, once "
              "it has ended"));
        Result<SecretsRewrapRequested> event = Rewrap(call);
        if (!event.ok()) return call->End(event.status());
        rotating_ = true;
        parts_.runtime.Ask(*std::move(event), [this, call, response](const Reply& reply) {
          rotating_ = false;
          Status status = reply.status;
          Failpoint("secrets.rewrapped");
          if (status.ok()) status = DropOldKeys();
          const auto* done = std::get_if<SecretsRewrapped>(&reply.body);
          if (call->open() && done != nullptr) response->set_secrets(done->count);
          call->End(status);
        });
      });
}

Status SecretService::DropOldKeys() {
  std::set<std::string> needed;
  for (const auto& [secret, record] : parts_.runtime.controller().Secrets())
    needed.insert(record.key_id);
  return vault_.DropOldKeys(needed);
}

Result<SecretsRewrapRequested> SecretService::Rewrap(const Call& call) {
  SecretsRewrapRequested event{.actor = call->actor()};
  const auto& secrets = parts_.runtime.controller().Secrets();
  if (secrets.empty()) return NotFound("there are no secrets; the first one makes the key");
  MUSTER_RETURN_IF_ERROR(vault_.AddKey());
  Failpoint("secrets.key_added");
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
  const auto call = std::make_shared<FetchCall>();
  call->request = *request;
  call->node = *node;
  call->peer = context->peer();
  call->response = response;
  call->reactor = reactor;
  parts_.loop.Post([this, call] { StartFetch(call); });
  return reactor;
}

void SecretService::StartFetch(const std::shared_ptr<FetchCall>& call) {
  Result<v1::FetchSecretsResponse> fetched = Fetch(call->request, call->node);
  RequestNoted note{.actor = {.name = "node/" + call->node, .peer = call->peer},
                    .operation = "FetchSecrets",
                    .object = "job " + call->request.job(),
                    .status = fetched.status()};
  if (!fetched.ok()) {
    Log().warn("node {} does not get the secrets of job {}: {}", call->node, call->request.job(),
               fetched.status().message());
    parts_.refusals.Note(std::move(note));
    return call->End(fetched.status());
  }
  parts_.runtime.Handle(std::move(note), [this, call, fetched = *std::move(fetched)] {
    parts_.runtime.AfterTrace([call, fetched](const Status& durable) {
      Failpoint("secrets.fetched");
      if (durable.ok()) *call->response = fetched;
      call->End(durable);
    });
  });
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
