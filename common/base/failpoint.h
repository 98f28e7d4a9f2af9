// Failpoints: named places where a test has a process killed (tests/chaos/failpoints.py).
//
// Off, and a comparison, unless the program has called ArmFailpoint, before another thread passes
// one. Any thread.
#pragma once

#include <iterator>
#include <string_view>

#include "common/base/status.h"

namespace muster {

// All there are: another name does not compile, and the test fails for one that it does not reach.
inline constexpr std::string_view kFailpoints[] = {
    // A start, and the end.
    "start.locked", "start.security", "start.loaded", "start.restored", "start.tls",
    "start.listening", "start.serving", "end.begun", "end.drained",
    // The SQLite store: opened, converted, a transaction.
    "store.opened", "store.created", "store.copy.written", "store.copy.named", "store.converted",
    "store.begin", "store.begun", "store.rotate", "store.commit", "store.committed",
    "store.reported",
    // Before a statement of the transaction, by operation.
    "write.job", "write.attempt", "write.checkpoint", "write.checkpoint_deleted", "write.node",
    "write.event", "write.node_deleted", "write.archive", "write.archive_deleted",
    "write.archived_job", "write.archived_checkpoint", "write.archived_time", "write.queues",
    "write.users", "write.audit", "write.secret", "write.secret_deleted", "write.queue_usage",
    "write.queue_usage_deleted", "write.queue_day", "write.queue_day_deleted",
    // A file of the journal.
    "journal.claimed", "journal.written", "journal.synced", "journal.linked", "journal.published",
    "journal.snapshot",
    // From a decision to what is seen of it outside.
    "decision.made", "decision.eager", "decision.queued", "decision.durable", "order.before",
    "order.after", "reply.before", "reply.after", "tick", "recall.read",
    // Before the answer to a call that changes something, which is durable.
    "answer.submit", "answer.cancel", "answer.suspend", "answer.resume", "answer.update",
    "answer.hold", "answer.release", "answer.drain", "answer.undrain", "answer.queues",
    "answer.users", "answer.secret_set", "answer.secret_remove",
    // What lies or happens beside the store.
    "secrets.key_made", "secrets.key_added", "secrets.rewrapped", "secrets.fetched",
    "enrol.redeemed", "enrol.signed", "login.certified", "login.noted", "page.session",
    "page.signed_in", "webhook.before", "webhook.after", "export.begun",
    // Workers.
    "worker.hello", "worker.taken", "worker.message", "worker.heartbeat", "worker.gone"};

// -1: none has this name.
constexpr int FailpointNumber(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kFailpoints); ++i)
    if (kFailpoints[i] == name) return static_cast<int>(i);
  return -1;
}

struct FailpointName {
  consteval FailpointName(const char* name) : number(FailpointNumber(name)) {
    if (number < 0) throw "kFailpoints does not have this name";
  }
  int number;
};

inline int armed_failpoint = -1;

void PassArmedFailpoint();

inline void Failpoint(FailpointName name) {
  if (name.number == armed_failpoint) [[unlikely]]
    PassArmedFailpoint();
}

// `value` is what MUSTER_FAILPOINT holds; null or empty: none. NAME or NAME:N: the Nth passing of
// this failpoint kills the process by SIGKILL.
Status ArmFailpoint(const char* value);

}  // namespace muster
