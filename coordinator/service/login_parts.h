// LoginParts: what the two ways to log in, LoginService and PageSignIn, work with. The server owns
// all of it and destroys it after them; the loop's thread, but for `loop` and `issuers`.
#pragma once

#include "common/oidc/issuer_lanes.h"
#include "common/runtime/event_loop.h"
#include "coordinator/service/authenticator.h"
#include "coordinator/service/controller_runtime.h"
#include "coordinator/service/refusal_log.h"

namespace muster {

struct LoginParts {
  EventLoop& loop;
  ControllerRuntime& runtime;
  const Authenticator& authenticator;
  RefusalLog& refusals;
  IssuerLanes& issuers;
};

}  // namespace muster
