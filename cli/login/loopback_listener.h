// LoopbackListener: where a browser comes back to after a sign-in (RFC 8252, 7.3): a port of
// 127.0.0.1 that the kernel chooses, open for one answer.
//
// Any program of this machine may connect. So requests are read one after the other, each within a
// second and of 8 KiB at most, and only the one with this login's state ends the wait. One thread.
#pragma once

#include <string>
#include <utility>

#include "cli/base/interrupt.h"
#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/oidc/requests.h"

namespace muster {

class LoopbackListener {
 public:
  static Result<LoopbackListener> Open();

  // "http://127.0.0.1:PORT/callback"
  const std::string& redirect_uri() const { return redirect_uri_; }
  // As CodeFromRequest, of the first request that answers this login. kDeadlineExceeded after
  // `limit`.
  Result<std::string> AwaitCode(const CodeLogin& login, const std::string& issuer, Duration limit,
                                Interrupt& interrupt) const;

 private:
  LoopbackListener(UniqueFd listener, std::string redirect_uri)
      : listener_(std::move(listener)), redirect_uri_(std::move(redirect_uri)) {}

  UniqueFd listener_;
  std::string redirect_uri_;
};

}  // namespace muster
