#include "trainer/core/failure.h"

#include "common/control_pipe/trainer_protocol.h"

namespace muster {

Failure CollectiveFailure(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kCancelled: return {"peer_lost", kExitPeerLost, status};
    default: return {"internal", kExitFailure, status};
  }
}

Failure InputFailure(const std::string& kind, const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kDataLoss:
    case StatusCode::kUnimplemented:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kOutOfRange:
    case StatusCode::kPermissionDenied: return {kind, kExitBadInput, status};
    default: return {"io", kExitFailure, status};
  }
}

Failure SharedInputFailure(const std::string& kind, const Status& status) {
  Failure failure = CollectiveFailure(status);
  return failure.exit_code == kExitPeerLost ? failure : InputFailure(kind, status);
}

Failure UncaughtFailure(const std::string& what) {
  // LibTorch's CPU allocator says so in its message only.
  const bool memory = what.find("not enough memory") != std::string::npos ||
                      what.find("bad_alloc") != std::string::npos;
  return {memory ? "out_of_memory" : "internal", kExitFailure, Internal(what)};
}

}  // namespace muster
