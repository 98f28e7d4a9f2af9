#include "cli/base/exit_code.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(ExitCode, EveryStatusHasOne) {
  const std::pair<StatusCode, int> table[] = {
      {StatusCode::kOk, 0},
      {StatusCode::kCancelled, 130},
      {StatusCode::kUnknown, 1},
      {StatusCode::kInvalidArgument, 2},
      {StatusCode::kDeadlineExceeded, 7},
      {StatusCode::kNotFound, 3},
      {StatusCode::kAlreadyExists, 6},
      {StatusCode::kPermissionDenied, 4},
      {StatusCode::kResourceExhausted, 8},
      {StatusCode::kFailedPrecondition, 6},
      {StatusCode::kAborted, 6},
      {StatusCode::kOutOfRange, 2},
      {StatusCode::kUnimplemented, 1},
      {StatusCode::kInternal, 1},
      {StatusCode::kUnavailable, 5},
      {StatusCode::kDataLoss, 1},
      {StatusCode::kUnauthenticated, 4},
  };
  for (const auto& [code, exit_code] : table)
    EXPECT_EQ(ExitCodeOf(Status(code, "")), exit_code) << StatusCodeName(code);
}

TEST(ShellWord, CanBePasted) {
  EXPECT_EQ(ShellWord("/tmp/a-b_c.1"), "/tmp/a-b_c.1");
  EXPECT_EQ(ShellWord("/tmp/a b"), "'/tmp/a b'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(NextCommand(Status(StatusCode::kUnavailable, ""), "/a b"), "muster up --dir '/a b'");
}

TEST(ExitCode, EveryJobStateHasOne) {
  const std::pair<v1::JobState, int> terminal[] = {
      {v1::JOB_STATE_SUCCEEDED, 0}, {v1::JOB_STATE_FAILED, 10}, {v1::JOB_STATE_CANCELLED, 11}};
  for (const auto& [state, exit_code] : terminal) {
    EXPECT_TRUE(IsTerminal(state));
    EXPECT_EQ(ExitCodeOf(state), exit_code);
  }
  for (const auto state : {v1::JOB_STATE_UNSPECIFIED, v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING,
                           v1::JOB_STATE_RUNNING, v1::JOB_STATE_RECOVERING, v1::JOB_STATE_STOPPING,
                           v1::JOB_STATE_SUSPENDED})
    EXPECT_FALSE(IsTerminal(state));
  EXPECT_EQ(ExitCodeOf(v1::JOB_STATE_SUSPENDED), 12) << "which is no failure";
}

}  // namespace
}  // namespace muster
