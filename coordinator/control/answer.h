// Answer: one reply to a client's request.
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

// Replies with what `decide` returns: the body, or the status that says why there is none.
template <typename Request, typename Decide>
void Answer(Transaction& tx, const Request& request, const Decide& decide) {
  Reply reply{.request = request.request};
  auto body = decide();
  reply.status = body.status();
  if (body.ok()) reply.body = *std::move(body);
  tx.out.replies.push_back(std::move(reply));
}

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
