#include "worker/agent/owner_frames.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <thread>

namespace muster::worker {
namespace {

using Json = nlohmann::json;

Deadline Soon() { return Deadline::After(std::chrono::seconds(5)); }

class OwnerFrames : public testing::Test {
 protected:
  void SetUp() override {
    auto pair = FramePair();
    ASSERT_TRUE(pair.ok());
    std::tie(mine_, theirs_) = *std::move(pair);
  }
  Status Raw(std::uint32_t size, const std::string& body) {
    std::string bytes(sizeof size, 0);
    std::memcpy(bytes.data(), &size, sizeof size);
    bytes += body;
    ::send(theirs_.get(), bytes.data(), bytes.size(), 0);
    return ReadFrame(mine_.get(), Deadline::After(std::chrono::milliseconds(20))).status();
  }

  UniqueFd mine_, theirs_;
};

TEST_F(OwnerFrames, AMessageSurvivesTheWay) {
  const CheckpointCommitted sent{.job = {"0123456789"},
                                 .generation = 3,
                                 .output_dir = "/out",
                                 .checkpoint = {.step = 7, .directory = "step-00000007-g3"},
                                 .prune = {"step-00000001-g1"},
                                 .account = "ada"};
  ASSERT_TRUE(WriteFrame(mine_.get(), {{"call", "commit"}, {"order", Packed(sent)}}, Soon()).ok());
  const auto frame = ReadFrame(theirs_.get(), Soon());
  ASSERT_TRUE(frame.ok()) << frame.status().ToString();
  const auto order = UnpackOrder(frame->at("order"));
  ASSERT_TRUE(order.ok()) << order.status().ToString();
  EXPECT_EQ(std::get<CheckpointCommitted>(*order), sent);
  Json status;
  AddStatus(NotFound("gone"), &status);
  EXPECT_EQ(StatusIn(status), NotFound("gone"));
}

TEST_F(OwnerFrames, WhatIsNoFrameIsAnError) {
  EXPECT_EQ(Raw(3, "abc").code(), StatusCode::kDataLoss);
  EXPECT_EQ(Raw(1, "\x01").code(), StatusCode::kDataLoss) << "a number";
  EXPECT_EQ(StatusIn(Json::object()).code(), StatusCode::kDataLoss);
  EXPECT_EQ(StatusIn({{"code", 4711}, {"message", "x"}}).code(), StatusCode::kUnknown);
  EXPECT_FALSE(UnpackReport(Json("text")).ok());
  EXPECT_FALSE(UnpackReport(Json::binary({1, 2, 3})).ok());
  EXPECT_EQ(Raw(~0U, "").code(), StatusCode::kDataLoss) << "too large";
}

// Both ended the worker: the library throws at the first even where it is not to throw, and calls
// itself for each array of the second.
TEST_F(OwnerFrames, LengthsAndDepthsThatNoMemoryHasAreRefused) {
  const std::string object("\xa1\x61x", 3);
  for (const std::string& value : {std::string("\x9b\x6c\x65\x6e\x67\x74\x68\x73\x62"),
                                   std::string("\xbb\x6c\x65\x6e\x67\x74\x68\x73\x62"),
                                   std::string(60'000, '\x81') + "\x01"}) {
    const std::string body = object + value;
    EXPECT_EQ(Raw(static_cast<std::uint32_t>(body.size()), body).code(), StatusCode::kDataLoss);
  }
}

// It took sixteen times its bytes of memory.
TEST_F(OwnerFrames, OneArrayOfAsManyNumbersAsFitIsRefused) {
  std::string body("\xa1\x61x\x9a\x00\xff\xff\xf0", 8);
  body.resize(8 + 0xfffff0);
  ASSERT_LE(body.size(), kMaxFrameBytes);
  const auto size = static_cast<std::uint32_t>(body.size());
  std::string bytes(sizeof size, 0);
  std::memcpy(bytes.data(), &size, sizeof size);
  bytes += body;
  std::thread sender([&] {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t n =
          ::send(theirs_.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
  });
  EXPECT_EQ(ReadFrame(mine_.get(), Soon()).status().code(), StatusCode::kDataLoss);
  mine_.reset();
  sender.join();
}

TEST_F(OwnerFrames, TheListsOfARealAnswerAreRead) {
  Json list = Json::array();
  for (int i = 0; i < 4096; ++i) list.push_back(Json::binary({1, 2, 3}));
  const Json sent = {{"stopped", true}, {"exited", list}, {"unkillable", Json::array({7, 8})}};
  ASSERT_TRUE(WriteFrame(theirs_.get(), sent, Soon()).ok());
  const auto frame = ReadFrame(mine_.get(), Soon());
  ASSERT_TRUE(frame.ok()) << frame.status().ToString();
  EXPECT_EQ(*frame, sent);
}

TEST_F(OwnerFrames, OneThatEndsOrSaysNothingIsNotWaitedFor) {
  EXPECT_EQ(Raw(100, "too few").code(), StatusCode::kDeadlineExceeded);
  theirs_.reset();
  EXPECT_EQ(ReadFrame(mine_.get(), Soon()).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(WriteFrame(mine_.get(), Json::object(), Soon()).code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace muster::worker
