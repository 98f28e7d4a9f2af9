#include "trainer/report/line_writer.h"

#include <gtest/gtest.h>

#include <string>

namespace muster {
namespace {

// A disk that does not answer until it is let go.
class LineWriterTest : public ::testing::Test {
 protected:
  LineWriter::Write Hang() {
    return [this] {
      std::unique_lock lock(mutex_);
      hanging_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
      return OkStatus();
    };
  }
  LineWriter::Write Letter(char letter) {
    return [this, letter] {
      std::lock_guard lock(mutex_);
      text_ += letter;
      return OkStatus();
    };
  }
  void AwaitHanging() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return hanging_; });
  }
  void Answer() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  std::string text() {
    std::lock_guard lock(mutex_);
    return text_;
  }
  static Deadline Soon() { return Deadline::After(std::chrono::seconds(10)); }
  static Deadline AtOnce() { return Deadline::After(std::chrono::milliseconds(1)); }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool hanging_ = false;
  bool open_ = false;
  std::string text_;
};

TEST_F(LineWriterTest, AllIsWrittenInOrderWhenTheWaitEnds) {
  LineWriter writer;
  for (const char letter : std::string("abc")) {
    ASSERT_TRUE(writer.Add(Letter(letter)));
    ASSERT_TRUE(writer.Await(Soon()));
  }
  EXPECT_EQ(text(), "abc");
  for (const char letter : std::string("def")) ASSERT_TRUE(writer.Add(Letter(letter)));
  ASSERT_TRUE(writer.Await(Soon()));
  EXPECT_EQ(text(), "abcdef");
}

TEST_F(LineWriterTest, ADiskThatDoesNotAnswerIsWaitedForOnceAndTheLinesComeLater) {
  LineWriter writer;
  ASSERT_TRUE(writer.Add(Hang()));
  AwaitHanging();
  EXPECT_FALSE(writer.Await(AtOnce()));
  for (const char letter : std::string("abc")) {
    ASSERT_TRUE(writer.Add(Letter(letter)));
    // With a deadline that the test would not live to see.
    EXPECT_FALSE(writer.Await(Deadline::After(std::chrono::hours(1))));
  }
  EXPECT_EQ(text(), "");
  Answer();
  while (!writer.Await(Soon())) std::this_thread::yield();
  EXPECT_EQ(text(), "abc");
  ASSERT_TRUE(writer.Add(Letter('d')));
  EXPECT_TRUE(writer.Await(Soon())) << "it is waited for again";
  EXPECT_EQ(text(), "abcd");
}

TEST_F(LineWriterTest, WhatDoesNotFitIsRefusedAndWhatIsForgottenIsCounted) {
  LineWriter writer(2);
  ASSERT_TRUE(writer.Add(Hang()));
  AwaitHanging();
  EXPECT_TRUE(writer.Add(Letter('a')));
  EXPECT_TRUE(writer.Add(Letter('b')));
  EXPECT_FALSE(writer.Add(Letter('c')));
  EXPECT_EQ(writer.Forget(), 2u);
  EXPECT_TRUE(writer.Add(Letter('d')));
  Answer();
  EXPECT_TRUE(writer.Await(Soon()));
  EXPECT_EQ(text(), "d");
}

TEST_F(LineWriterTest, AFailureIsToldOnce) {
  LineWriter writer;
  ASSERT_TRUE(writer.Add([] { return ResourceExhausted("full"); }));
  ASSERT_TRUE(writer.Add([] { return Internal("later"); }));
  ASSERT_TRUE(writer.Await(Soon()));
  EXPECT_EQ(writer.TakeFailure().message(), "full");
  EXPECT_TRUE(writer.TakeFailure().ok());
}

}  // namespace
}  // namespace muster
