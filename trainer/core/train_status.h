// TrainStatus and TrainResult<T>: how a part of a rank's training went: a Status and, where it
// failed, whose fault that is, in the words of the control protocol.
//
// The one channel of failures above the collectives. A plain Status becomes one by what a failed
// collective means, so that a function may return either; who reads files says which of them is at
// fault. Exceptions become one in RankProcess. Plain values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "common/base/result.h"

namespace muster {

enum class FailureKind {
  kPeerLost,
  kConfig,  // the job file, or what it names
  kData,
  kModel,
  kNonFinite,
  kIo,
  kOutOfMemory,
  kInternal,
};

class [[nodiscard]] TrainStatus {
 public:
  TrainStatus() = default;  // OK
  // What a collective, or forming, has ended with: a lost peer where the status is kUnavailable,
  // kDeadlineExceeded or kCancelled, else an internal error.
  TrainStatus(Status status);
  // `symptom`: it follows from what another rank has found in itself and reports.
  TrainStatus(FailureKind kind, Status status, bool symptom = false)
      : status_(std::move(status)), kind_(kind), symptom_(symptom) {}

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  const std::string& message() const { return status_.message(); }
  // These are of a failure.
  FailureKind kind() const { return kind_; }
  std::string_view kind_name() const;  // "peer_lost", as reports to the guardian have it
  int exit_code() const;
  bool symptom() const { return symptom_; }

 private:
  Status status_;
  FailureKind kind_ = FailureKind::kInternal;
  bool symptom_ = false;
};

// A Result whose status says as much.
template <typename T>
class [[nodiscard]] TrainResult : public Result<T> {
 public:
  TrainResult(T value) : Result<T>(std::move(value)) {}
  TrainResult(TrainStatus failure) : Result<T>(failure.status()), status_(std::move(failure)) {}
  TrainResult(Status failure) : TrainResult(TrainStatus(std::move(failure))) {}

  const TrainStatus& status() const { return status_; }

 private:
  TrainStatus status_;
};

// What a file that could not be used means. `kind` is kConfig, kData or kModel; trouble with the
// disk itself becomes kIo, for which another attempt may do better. OK stays OK.
TrainStatus FromInput(FailureKind kind, Status status);
// The same where ranks read together: it may also be that a peer was lost.
TrainStatus FromSharedInput(FailureKind kind, Status status);
template <typename T>
TrainResult<T> FromInput(FailureKind kind, Result<T> result) {
  if (result.ok()) return *std::move(result);
  return FromInput(kind, result.status());
}
template <typename T>
TrainResult<T> FromSharedInput(FailureKind kind, Result<T> result) {
  if (result.ok()) return *std::move(result);
  return FromSharedInput(kind, result.status());
}
// An exception that nothing else caught.
TrainStatus FromException(const std::string& what);

}  // namespace muster
