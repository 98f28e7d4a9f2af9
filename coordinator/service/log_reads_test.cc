#include "coordinator/service/log_reads.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace muster {
namespace {

class LogReadsTest : public ::testing::Test {
 protected:
  LogReads::Done Keep() {
    return [this](Result<v1::LogChunk> chunk) {
      ++answers_;
      last_.emplace(std::move(chunk));
    };
  }
  v1::LogChunk Chunk(std::uint64_t id, const std::string& error = "") {
    v1::LogChunk chunk;
    chunk.set_request_id(id);
    chunk.set_data("text");
    chunk.set_error(error);
    return chunk;
  }

  EventLoop loop_;  // never runs: no deadline passes on its own
  LogReads reads_{loop_};
  int answers_ = 0;
  std::optional<Result<v1::LogChunk>> last_;
};

TEST_F(LogReadsTest, AReadIsAnsweredOnceByItsChunk) {
  const auto id = reads_.Start(1, Keep());
  ASSERT_TRUE(id.ok());
  reads_.Complete(1, Chunk(*id));
  reads_.Complete(1, Chunk(*id));
  EXPECT_EQ(answers_, 1);
  ASSERT_TRUE((*last_).ok());
  EXPECT_EQ((**last_).data(), "text");
}

TEST_F(LogReadsTest, AnotherSessionCannotAnswer) {
  const auto id = reads_.Start(1, Keep());
  reads_.Complete(2, Chunk(*id));
  EXPECT_EQ(answers_, 0);
}

TEST_F(LogReadsTest, TheNodesErrorIsPassedOn) {
  const auto id = reads_.Start(1, Keep());
  reads_.Complete(1, Chunk(*id, "no such log"));
  EXPECT_EQ(last_->status().message(), "no such log");
}

TEST_F(LogReadsTest, TheEndOfASessionEndsItsReadsOnly) {
  ASSERT_TRUE(reads_.Start(1, Keep()).ok());
  const auto other = reads_.Start(2, Keep());
  reads_.FailSession(1);
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(last_->status().code(), StatusCode::kUnavailable);
  reads_.Complete(2, Chunk(*other));
  EXPECT_EQ(answers_, 2);
}

TEST_F(LogReadsTest, ReadsThatWaitAreBounded) {
  for (std::size_t i = 0; i < LogReads::kMaxWaiting; ++i) ASSERT_TRUE(reads_.Start(1, Keep()).ok());
  EXPECT_EQ(reads_.Start(1, Keep()).status().code(), StatusCode::kResourceExhausted);
  reads_.FailSession(1);
  EXPECT_TRUE(reads_.Start(1, Keep()).ok());
}

}  // namespace
}  // namespace muster
