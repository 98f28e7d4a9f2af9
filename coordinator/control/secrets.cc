#include "coordinator/control/secrets.h"

#include <algorithm>
#include <string>

#include "coordinator/control/answer.h"

namespace muster::control {
namespace {

Status CheckRoom(const State& state, const SecretName& secret) {
  if (state.secrets.contains(secret)) return OkStatus();
  const auto count = std::ranges::count_if(
      state.secrets, [&](const auto& each) { return each.first.owner == secret.owner; });
  if (static_cast<std::size_t>(count) < kMaxSecretsOfAnOwner) return OkStatus();
  return ResourceExhausted(secret.owner + " has " + std::to_string(kMaxSecretsOfAnOwner) +
                           " secrets, the most that one user may have\n  next: muster secret rm");
}

std::string Next(const SecretName& secret) {
  return "\n  next: muster secret set " + secret.name + " --queue " + secret.queue;
}

}  // namespace

void On(Transaction& tx, const SecretSetRequested& request) {
  Answer(tx, request, [&]() -> Result<SecretAccepted> {
    const SecretName& secret = request.record.secret;
    if (tx.state.queues.Find(secret.queue) < 0)
      return InvalidArgument(UnknownQueue(tx.state.queues, secret.queue));
    MUSTER_RETURN_IF_ERROR(CheckRoom(tx.state, secret));
    SecretRecord record = request.record;
    record.updated_unix_ms = tx.now.unix_ms;
    record.updated_by = ActorText(request.actor);
    tx.state.secrets[secret] = record;
    tx.Write(PutSecret{std::move(record)});
    return SecretAccepted{secret};
  });
}

void On(Transaction& tx, const SecretRemoveRequested& request) {
  Answer(tx, request, [&]() -> Result<SecretAccepted> {
    if (tx.state.secrets.erase(request.secret) == 0)
      return NotFound(request.secret.owner + " has no secret '" + request.secret.name +
                      "' in queue " + request.secret.queue + "\n  next: muster secret list");
    tx.Write(DeleteSecret{request.secret});
    return SecretAccepted{request.secret};
  });
}

// A secret that was changed in the meantime already has the newest key.
void On(Transaction& tx, const SecretsRewrapRequested& request) {
  Answer(tx, request, [&]() -> Result<SecretsRewrapped> {
    SecretsRewrapped done;
    for (const SecretRecord& record : request.records) {
      const auto known = tx.state.secrets.find(record.secret);
      if (known == tx.state.secrets.end() || known->second.value != record.value) continue;
      known->second = record;
      tx.Write(PutSecret{record});
      ++done.count;
    }
    return done;
  });
}

const SecretRecord* FindSecret(const State& state, const std::string& owner, std::string_view queue,
                               const std::string& name) {
  for (int place = state.queues.Find(queue); place >= 0;) {
    const QueueSpec& spec = state.queues.queues[static_cast<std::size_t>(place)];
    const auto found = state.secrets.find({owner, spec.name, name});
    if (found != state.secrets.end()) return &found->second;
    place = spec.parent;
  }
  return nullptr;
}

Status CheckSecrets(const State& state, const std::string& owner, const JobSpec& spec) {
  const std::string queue = QueueName(spec.queue);
  for (const SecretUse& use : spec.secrets)
    if (FindSecret(state, owner, queue, use.name) == nullptr)
      return FailedPrecondition("secrets: " + owner + " has no secret '" + use.name +
                                "' in queue " + queue + " or one above it" +
                                Next({owner, queue, use.name}));
  return OkStatus();
}

}  // namespace muster::control
