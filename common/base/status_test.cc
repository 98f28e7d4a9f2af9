#include "common/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

#include "common/base/result.h"

namespace muster {
namespace {

TEST(Status, PrintsCodeAndMessage) {
  EXPECT_EQ(OkStatus().ToString(), "OK");
  EXPECT_EQ(NotFound("job 7f3a").ToString(), "NOT_FOUND: job 7f3a");
  EXPECT_EQ(OkStatus(), Status());
  EXPECT_NE(NotFound("a"), NotFound("b"));
}

TEST(Status, ContextIsPutBeforeTheMessageOfAFailureOnly) {
  EXPECT_EQ(DataLoss("torn").WithContext("shard 1").message(), "shard 1: torn");
  EXPECT_EQ(DataLoss("torn").WithContext("shard 1").code(), StatusCode::kDataLoss);
  EXPECT_TRUE(OkStatus().WithContext("shard 1").ok());
}

TEST(Status, ErrnoBecomesACodeAPeerUnderstands) {
  EXPECT_EQ(ErrnoStatus(ENOENT, "open /x").code(), StatusCode::kNotFound);
  EXPECT_EQ(ErrnoStatus(ENOENT, "open /x").message(), "open /x: No such file or directory");
  EXPECT_EQ(ErrnoStatus(EACCES, "x").code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrnoStatus(ENOSPC, "x").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoStatus(EIO, "x").code(), StatusCode::kDataLoss);
  EXPECT_EQ(ErrnoStatus(EXDEV, "x").code(), StatusCode::kUnknown);
}

TEST(Status, EveryCodeHasAName) {
  for (int code = 0; code <= 16; ++code)
    EXPECT_EQ(StatusCodeName(static_cast<StatusCode>(code)) == "UNKNOWN", code == 2) << code;
}

Result<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("odd");
  return value / 2;
}

Result<int> Quarter(int value) {
  MUSTER_ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

Status CheckQuarter(int value) {
  MUSTER_RETURN_IF_ERROR(Quarter(value).status());
  return OkStatus();
}

TEST(Result, CarriesAValueOrTheReason) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status(), InvalidArgument("odd"));
  EXPECT_TRUE(CheckQuarter(8).ok());
  EXPECT_FALSE(CheckQuarter(6).ok());
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> value = *std::move(result);
  EXPECT_EQ(*value, 7);
}

TEST(ResultDeathTest, TakingTheValueOfAFailureAborts) {
  EXPECT_DEATH(static_cast<void>(*Half(3)), "odd");
}

}  // namespace
}  // namespace muster
