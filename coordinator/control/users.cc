#include "coordinator/control/users.h"

#include <string>
#include <utility>

#include "coordinator/control/answer.h"
#include "coordinator/control/queue_usage.h"
#include "coordinator/control/shares.h"

namespace muster::control {
namespace {

Result<UsersAccepted> Apply(Transaction& tx, const UsersApplyRequested& request) {
  State& state = tx.state;
  const std::uint64_t current = state.users.version;
  MUSTER_ASSIGN_OR_RETURN(UserDirectory users, request.users);
  const bool same = state.users.in_force() && request.yaml == state.users_yaml;
  // A call is repeated where its answer was lost.
  const bool repeated = same && request.expected_version + 1 == current;
  if (!request.check_only && !repeated && request.expected_version != current)
    return Aborted("the users have version " + std::to_string(current) +
                   ", and this file was to replace version " +
                   std::to_string(request.expected_version) +
                   ": another file was applied in between\n  next: muster users show -o yaml, and "
                   "make your change in that file");
  MUSTER_RETURN_IF_ERROR(CheckQueues(users, state.queues));
  UsersAccepted accepted{.version = current, .changes = UserChanges(state.users, users)};
  if (request.check_only || same) return accepted;
  users.version = accepted.version = current + 1;
  state.users = std::move(users);
  RebuildShares(state);
  RebookUsage(tx, state.queues.half_life_seconds);
  state.reschedule = true;
  state.users_yaml = request.yaml;
  tx.Write(PutUsers{{accepted.version, request.yaml}});
  tx.RecordClusterEvent({"users_applied", Severity::kInfo,
                         "users: version " + std::to_string(accepted.version) + ", " +
                             std::to_string(accepted.changes.size()) + " changed"});
  return accepted;
}

}  // namespace

void On(Transaction& tx, const UsersApplyRequested& request) {
  Answer(tx, request, [&] { return Apply(tx, request); });
}

void On(Transaction& tx, const RequestNoted& request) {
  Audit(tx, request.actor,
        {.operation = request.operation, .object = request.object, .detail = request.detail},
        request.status);
}

}  // namespace muster::control
