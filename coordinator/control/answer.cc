#include "coordinator/control/answer.h"

#include <utility>

#include "common/base/text.h"

namespace muster::control {
namespace {

constexpr std::size_t kMaxAuditBytes = 4096;  // of each text

}  // namespace

void Audit(Transaction& tx, const Actor& actor, AuditEntry entry, const Status& outcome) {
  entry.actor = ActorId(actor);
  entry.as_user = actor.as_user;
  entry.peer = actor.peer;
  entry.request = actor.request;
  entry.outcome = StatusCodeName(outcome.code());
  if (!outcome.ok()) entry.detail = outcome.message();
  entry.unix_ms = tx.now.unix_ms;
  entry.object = CutText(std::move(entry.object), kMaxAuditBytes);
  entry.detail = CutText(std::move(entry.detail), kMaxAuditBytes);
  std::string line = SealAuditEntry(std::move(entry), &tx.state.audit);
  tx.Write(AppendAudit{tx.state.audit.seq, std::move(line)});
}

std::string ByWhom(const Transaction& tx, const Actor& actor) {
  const bool known = tx.state.users.in_force() && !actor.name.empty();
  return known ? "by " + ActorText(actor) : "by a user";
}

}  // namespace muster::control
