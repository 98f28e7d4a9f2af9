#include "trainer/core/train_status.h"

#include "common/control_pipe/trainer_protocol.h"

namespace muster {
namespace {

struct KindRow {
  std::string_view name;
  int exit_code;
};
constexpr KindRow kRows[] = {
    {"peer_lost", kExitPeerLost},     // kPeerLost
    {"config", kExitBadInput},        // kConfig
    {"data", kExitBadInput},          // kData
    {"model", kExitBadInput},         // kModel
    {"nonfinite", kExitNonFinite},    // kNonFinite
    {"io", kExitFailure},             // kIo
    {"out_of_memory", kExitFailure},  // kOutOfMemory
    {"internal", kExitFailure},       // kInternal
};

FailureKind KindOfCollective(StatusCode code) {
  const bool lost = code == StatusCode::kUnavailable || code == StatusCode::kDeadlineExceeded ||
                    code == StatusCode::kCancelled;
  return lost ? FailureKind::kPeerLost : FailureKind::kInternal;
}

}  // namespace

TrainStatus::TrainStatus(Status status)
    : status_(std::move(status)), kind_(KindOfCollective(status_.code())) {}

std::string_view TrainStatus::kind_name() const { return kRows[static_cast<int>(kind_)].name; }

int TrainStatus::exit_code() const { return kRows[static_cast<int>(kind_)].exit_code; }

TrainStatus FromInput(FailureKind kind, Status status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kDataLoss:
    case StatusCode::kUnimplemented:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kOutOfRange:
    case StatusCode::kPermissionDenied: return {kind, std::move(status)};
    default: return {FailureKind::kIo, std::move(status)};
  }
}

TrainStatus FromSharedInput(FailureKind kind, Status status) {
  if (KindOfCollective(status.code()) == FailureKind::kPeerLost) return status;
  return FromInput(kind, std::move(status));
}

TrainStatus FromException(const std::string& what) {
  // LibTorch's CPU allocator says so in its message only.
  const bool memory = what.find("not enough memory") != std::string::npos ||
                      what.find("bad_alloc") != std::string::npos;
  return {memory ? FailureKind::kOutOfMemory : FailureKind::kInternal, Internal(what)};
}

}  // namespace muster
