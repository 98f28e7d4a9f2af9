// Status: the outcome of an operation that may fail for reasons outside the program.
//
// Codes are gRPC's canonical ones, so that a Status crosses the wire without translation. The
// message names the object, says why, and where a user can act, what to do next. Broken
// invariants are not a Status: they abort (check.h).
//
// Value type; copyable; safe to use from any thread as any value is.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace muster {

// Numeric values equal grpc::StatusCode.
enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message, int error_number = 0)
      : code_(code), error_number_(error_number), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // errno of the failed system call; 0: none. It does not cross the wire.
  int error_number() const { return error_number_; }

  // "NOT_FOUND: job 7f3a" or "OK".
  std::string ToString() const;

  // The same status with `context: ` put before the message; OK stays OK.
  Status WithContext(std::string_view context) const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  int error_number_ = 0;
  std::string message_;
};

inline Status OkStatus() { return {}; }
Status Cancelled(std::string message);
Status InvalidArgument(std::string message);
Status DeadlineExceeded(std::string message);
Status NotFound(std::string message);
Status AlreadyExists(std::string message);
Status PermissionDenied(std::string message);
Status ResourceExhausted(std::string message);
Status FailedPrecondition(std::string message);
Status Aborted(std::string message);
Status Unimplemented(std::string message);
Status Internal(std::string message);
Status Unavailable(std::string message);
Status DataLoss(std::string message);
Status Unauthenticated(std::string message);

// The status of a failed system call: "open /a/b: No such file or directory". `error` is errno.
Status ErrnoStatus(int error, std::string_view what);

}  // namespace muster

// Returns the status of `expression` from the enclosing function if it is not OK.
#define MUSTER_RETURN_IF_ERROR(expression)                                    \
  do {                                                                        \
    if (::muster::Status muster_status_ = (expression); !muster_status_.ok()) \
      return muster_status_;                                                  \
  } while (false)
