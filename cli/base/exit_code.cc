#include "cli/base/exit_code.h"

#include <algorithm>
#include <string_view>

namespace muster {

int ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return kExitSuccess;
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange: return kExitBadUsage;
    case StatusCode::kNotFound: return kExitNotFound;
    case StatusCode::kPermissionDenied:
    case StatusCode::kUnauthenticated: return kExitNotAllowed;
    case StatusCode::kUnavailable: return kExitUnreachable;
    case StatusCode::kAlreadyExists:
    case StatusCode::kAborted:
    case StatusCode::kFailedPrecondition: return kExitConflict;
    case StatusCode::kDeadlineExceeded: return kExitTimeout;
    // A system call has failed: a disk is full, say.
    case StatusCode::kResourceExhausted:
      return status.error_number() == 0 ? kExitCannotBePlaced : kExitError;
    case StatusCode::kCancelled: return kExitInterrupted;
    case StatusCode::kUnknown:
    case StatusCode::kUnimplemented:
    case StatusCode::kInternal:
    case StatusCode::kDataLoss: return kExitError;
  }
  return kExitError;
}

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

int ExitCodeOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED: return kExitSuccess;
    case v1::JOB_STATE_FAILED: return kExitJobFailed;
    case v1::JOB_STATE_CANCELLED: return kExitJobCancelled;
    case v1::JOB_STATE_SUSPENDED: return kExitJobSuspended;
    default: return kExitError;
  }
}

std::string ShellWord(const std::string& text) {
  const auto harmless = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-+,:@%=").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), harmless)) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string NextCommand(const Status& status, const std::string& dir) {
  switch (status.code()) {
    case StatusCode::kUnavailable: return "muster up --dir " + ShellWord(dir);
    case StatusCode::kUnauthenticated:
      return "ls -l " + ShellWord(dir + "/coordinator/token") +
             "   (must be readable by you alone)";
    default: return "";
  }
}

}  // namespace muster
