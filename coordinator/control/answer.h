// Answer: one reply to a client's request, and its entry in the audit trail.
//
// Part of a transaction; one thread.
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "common/base/result.h"
#include "coordinator/control/transaction.h"

namespace muster::control {

// What `actor` has asked for and what came of it; `entry` has operation, object and detail.
void Audit(Transaction& tx, const Actor& actor, AuditEntry entry, const Status& outcome);

// "secret hf of ada in nlp".
inline std::string SecretText(const SecretName& secret) {
  return "secret " + secret.name + " of " + secret.owner + " in " + secret.queue;
}

// What the request is about, as far as it says so.
template <typename Request>
std::string ObjectOf(const Request& request) {
  if constexpr (requires { request.new_id; }) return "job " + request.new_id.value;
  if constexpr (requires { request.job; })
    if (!request.job.empty()) return "job " + request.job;
  if constexpr (requires { request.secret; }) return SecretText(request.secret);
  if constexpr (requires { request.record; }) return SecretText(request.record.secret);
  if constexpr (requires { request.node; }) return "node " + request.node.value;
  return "";
}

// The same as far as the answer says so, and what was changed.
template <typename Request, typename Body>
AuditEntry EntryOf(const Request& request, const Body& body) {
  AuditEntry entry{.object = ObjectOf(request)};
  if constexpr (requires { request.reason; }) entry.detail = request.reason;
  if constexpr (requires { body.secret; }) entry.object = SecretText(body.secret);
  if constexpr (requires { body.count; }) entry.detail = std::to_string(body.count) + " secrets";
  if constexpr (requires { body.id; }) entry.object = "job " + body.id.value;
  if constexpr (requires { body.name; }) entry.detail = body.name;
  if constexpr (requires { body.changed; }) entry.detail = body.changed;
  if constexpr (requires { body.changes; }) {
    entry.object = "version " + std::to_string(body.version);
    for (const std::string& change : body.changes)
      entry.detail += (entry.detail.empty() ? "" : "; ") + change;
  }
  return entry;
}

// Whether the request changes anything, whatever its outcome.
template <typename Request>
bool ChangesAnything(const Request& request) {
  if constexpr (requires { request.check_only; }) return !request.check_only;
  return true;
}

// Replies with what `decide` returns: the body, or the status that says why there is none.
template <typename Request, typename Decide>
void Answer(Transaction& tx, const Request& request, const Decide& decide) {
  Reply reply{.request = request.request};
  auto body = decide();
  reply.status = body.status();
  if (ChangesAnything(request)) {
    AuditEntry entry =
        body.ok() ? EntryOf(request, *body) : AuditEntry{.object = ObjectOf(request)};
    entry.operation = Name(Request::kOperation);
    Audit(tx, request.actor, std::move(entry), reply.status);
  }
  if (body.ok()) reply.body = *std::move(body);
  tx.out.replies.push_back(std::move(reply));
}

// "by ada"; without users in the cluster "by a user".
std::string ByWhom(const Transaction& tx, const Actor& actor);

// Time that a request gives the ranks to save their state.
inline Status CheckBySeconds(double by_seconds) {
  constexpr int kMaxBySeconds = 365 * 24 * 3600;
  if (by_seconds >= 0 && by_seconds <= kMaxBySeconds) return OkStatus();
  std::array<char, 32> got;
  std::snprintf(got.data(), got.size(), "%g", by_seconds);
  return InvalidArgument("by_seconds is 0 (no limit) to " + std::to_string(kMaxBySeconds) +
                         ", got " + got.data() + "; leave it out for no limit");
}

}  // namespace muster::control
