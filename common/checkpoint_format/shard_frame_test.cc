#include "common/checkpoint_format/shard_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class ShardFrameTest : public ::testing::Test {
 protected:
  ShardFrameTest() { expected_.path = dir_ + "/rank-00000.shard"; }

  // Two pieces and a bit.
  std::string Content() const {
    const std::string json = R"({"some":"header"})";
    const ShardFrame frame = ShardFrame::Make(json.size(), 2 * kShardPieceBytes + 5000);
    const std::string head = EncodeShardHead(frame, json);
    std::string data(frame.data_bytes, '\0');
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7 + i / 4096);
    std::string table(frame.table_bytes(), '\0');
    for (std::uint64_t i = 0; i < frame.pieces(); ++i) {
      const std::string piece = data.substr(i * frame.piece_bytes, frame.piece_bytes);
      const std::uint64_t checksum = PieceChecksum(piece.data(), piece.size());
      std::memcpy(table.data() + 8 * i, &checksum, sizeof(checksum));
    }
    return head + data + table;
  }

  Status VerifyContent(const std::string& content) {
    EXPECT_TRUE(WriteFileAtomically(expected_.path, content).ok());
    return VerifyShardFile(expected_);
  }

  const TempDirForTest temp_;
  const std::string dir_ = temp_.path();
  ExpectedShard expected_;
};

TEST_F(ShardFrameTest, PartsBeginAtBlocksAndAddUp) {
  const ShardFrame frame = ShardFrame::Make(100, 3 * kShardPieceBytes + 1);
  EXPECT_EQ(frame.data_begin, 4096u);
  EXPECT_EQ(frame.data_bytes, 3 * kShardPieceBytes + 4096u);
  EXPECT_EQ(frame.pieces(), 4u);
  EXPECT_EQ(frame.table_bytes(), 4096u);
  EXPECT_EQ(frame.file_bytes(), frame.data_begin + frame.data_bytes + 4096);
  const ShardFrame empty = ShardFrame::Make(100, 0);
  EXPECT_EQ(empty.pieces(), 0u);
  EXPECT_EQ(empty.file_bytes(), 4096u);
}

TEST_F(ShardFrameTest, HeadComesBackAsItWasWritten) {
  const ShardFrame frame = ShardFrame::Make(5000, 70'000);
  const std::string head = EncodeShardHead(frame, std::string(5000, 'x'));
  EXPECT_EQ(head.size(), frame.data_begin);
  const auto decoded = DecodeShardFrame(head.substr(0, kShardPreambleBytes), frame.file_bytes());
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->data_begin, frame.data_begin);
  EXPECT_EQ(decoded->data_bytes, frame.data_bytes);
  EXPECT_EQ(decoded->header_bytes, 5000u);
  EXPECT_EQ(decoded->piece_bytes, kShardPieceBytes);
}

TEST_F(ShardFrameTest, WhatClaimsTooMuchIsRefused) {
  const ShardFrame frame = ShardFrame::Make(500, 70'000);
  const std::string good = EncodeShardHead(frame, std::string(500, 'x'));
  const auto with = [&](std::size_t offset, std::uint64_t value, std::size_t size) {
    std::string bad = good.substr(0, kShardPreambleBytes);
    std::memcpy(bad.data() + offset, &value, size);
    return DecodeShardFrame(bad, frame.file_bytes()).status();
  };
  EXPECT_THAT(with(0, 'X', 1).message(), HasSubstr("not a shard"));
  EXPECT_THAT(with(8, 9, 4).message(), HasSubstr("format version is 9"));
  EXPECT_THAT(with(12, 0, 4).message(), HasSubstr("sizes"));
  EXPECT_THAT(with(12, 4097, 4).message(), HasSubstr("sizes"));
  EXPECT_THAT(with(16, ~0ull, 8).message(), HasSubstr("header claims"));
  EXPECT_EQ(with(24, ~0ull << 12, 8).code(), StatusCode::kDataLoss);
  EXPECT_EQ(with(24, 4096, 8).code(), StatusCode::kDataLoss);
  EXPECT_EQ(DecodeShardFrame(good.substr(0, 30), frame.file_bytes()).status().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(DecodeShardFrame(good, frame.file_bytes() + 1).status().code(), StatusCode::kDataLoss);
}

TEST_F(ShardFrameTest, FlippedBitIsFoundWhereverItIs) {
  const std::string content = Content();
  expected_.bytes = content.size();
  const ShardFrame frame = *DecodeShardFrame(content.substr(0, 40), content.size());
  expected_.checksum =
      ShardChecksum(content.substr(0, frame.data_begin), content.substr(frame.table_begin()));
  EXPECT_TRUE(VerifyContent(content).ok());
  // Header, its padding, the first and the last piece, the table and what is behind its entries.
  for (const std::size_t at : {std::size_t{45}, std::size_t{4000}, std::size_t{5000},
                               frame.table_begin() - 1, frame.table_begin(), content.size() - 1}) {
    std::string bad = content;
    bad[at] ^= 4;
    const Status status = VerifyContent(bad);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << at;
    EXPECT_THAT(status.message(), HasSubstr(expected_.path + " is damaged")) << at;
  }
}

TEST_F(ShardFrameTest, OtherSizesAndMissingFilesAreDistinguished) {
  const std::string content = Content();
  expected_.bytes = content.size() + 4096;
  EXPECT_THAT(VerifyContent(content).message(), HasSubstr("its manifest says"));
  expected_.path = dir_ + "/none";
  EXPECT_EQ(VerifyShardFile(expected_).code(), StatusCode::kNotFound);
  EXPECT_EQ(VerifyContent("short").code(), StatusCode::kDataLoss);
}

TEST_F(ShardFrameTest, APipeIsRefusedWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo(expected_.path.c_str(), 0600), 0);
  const Status status = VerifyShardFile(expected_);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("is not a regular file"));
}

// The bytes are what the program of format version 1 wrote; XXH3-64 over the whole file.
TEST_F(ShardFrameTest, Version1IsVerifiedAsAWhole) {
  std::string content = "MUSTERSH";
  content += std::string("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0{}", 18);
  content.resize(64, '\0');
  content += "data";
  expected_.bytes = content.size();
  expected_.checksum = "xxh3:185c5e6997b646f3";
  EXPECT_TRUE(VerifyContent(content).ok());
  content.back() ^= 1;
  EXPECT_EQ(VerifyContent(content).code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace muster
