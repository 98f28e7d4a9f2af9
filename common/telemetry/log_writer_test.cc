#include "common/telemetry/log_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "common/base/check.h"
#include "common/base/unique_fd.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/exit_deadline.h"
#include "common/telemetry/log.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr unsigned kHungSeconds = 20;  // a child of a death test that hangs is ended by SIGALRM

struct Pipe {
  UniqueFd reader, writer;
};

Pipe MakePipe() {
  int fds[2] = {-1, -1};
  MUSTER_CHECK(::pipe2(fds, O_CLOEXEC) == 0, "pipe");
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// A pipe whose next write blocks.
Pipe MakeFullPipe() {
  Pipe full = MakePipe();
  const int flags = ::fcntl(full.writer.get(), F_GETFL);
  ::fcntl(full.writer.get(), F_SETFL, flags | O_NONBLOCK);
  const std::string chunk(4096, '-');
  while (::write(full.writer.get(), chunk.data(), chunk.size()) > 0) continue;
  ::fcntl(full.writer.get(), F_SETFL, flags);
  return full;
}

std::string ReadBytes(int fd, std::size_t bytes) {
  std::string text(bytes, '\0');
  std::size_t filled = 0;
  while (filled < bytes) {
    const ssize_t n = ::read(fd, text.data() + filled, bytes - filled);
    if (n <= 0) break;
    filled += static_cast<std::size_t>(n);
  }
  text.resize(filled);
  return text;
}

std::string ReadToEnd(int fd) {
  std::string text;
  for (std::string chunk; !(chunk = ReadBytes(fd, 1)).empty();) text += chunk;
  return text;
}

std::size_t BytesWaiting(int fd) { return static_cast<std::size_t>(::fcntl(fd, F_GETPIPE_SZ)); }

std::string Missing(std::uint64_t lines) { return std::to_string(lines) + " are missing\n"; }

TEST(LogWriter, WritesLinesInOrder) {
  Pipe pipe = MakePipe();
  {
    LogWriter writer(pipe.writer.get(), Missing);
    writer.Append("one\n");
    writer.Append("two\n");
    EXPECT_TRUE(writer.Drain(std::chrono::seconds(10)));
    writer.Append("three\n");
  }
  pipe.writer.reset();
  EXPECT_EQ(ReadToEnd(pipe.reader.get()), "one\ntwo\nthree\n");
}

TEST(LogWriter, DropsAndCountsWhatFindsTheBufferFullAndLogsTheCount) {
  Pipe pipe = MakeFullPipe();
  const std::size_t before = BytesWaiting(pipe.writer.get());
  LogWriter writer(pipe.writer.get(), Missing, /*max_buffered=*/8);
  // Whether the thread has taken the first line or not: the buffer holds one more at most.
  for (int i = 0; i < 5; ++i) writer.Append("line\n");
  EXPECT_FALSE(writer.Drain(std::chrono::milliseconds(1)));
  const std::uint64_t dropped = writer.dropped();
  EXPECT_GE(dropped, 3u);
  ReadBytes(pipe.reader.get(), before);  // now there is room
  ASSERT_TRUE(writer.Drain(std::chrono::seconds(10)));
  writer.Append("after\n");
  ASSERT_TRUE(writer.Drain(std::chrono::seconds(10)));
  const std::string line = "line\n", missing = Missing(dropped);
  // If two lines were taken, the missing ones are those after them or, where the thread took the
  // first one late, those between them.
  const std::string second = dropped == 3 ? line : "";
  const std::string text =
      ReadBytes(pipe.reader.get(), (line + second + missing + "after\n").size());
  EXPECT_THAT(text,
              AnyOf(line + second + missing + "after\n", line + missing + second + "after\n"));
  EXPECT_EQ(writer.dropped(), dropped);
}

TEST(LogWriter, CountsWhatADiskThatIsFullDoesNotTake) {
  UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  LogWriter writer(full.get(), Missing);
  writer.Append("one\n");
  ASSERT_TRUE(writer.Drain(std::chrono::seconds(10)));
  EXPECT_EQ(writer.dropped(), 1u);
  Pipe pipe = MakePipe();
  ASSERT_GE(::dup2(pipe.writer.get(), full.get()), 0);  // works again
  writer.Append("two\n");
  const std::string expected = Missing(1) + "two\n";
  EXPECT_EQ(ReadBytes(pipe.reader.get(), expected.size()), expected);
}

// Runs each case in its own process, whose standard error is a pipe without a reader.
class BlockedStderrDeathTest : public testing::Test {
 protected:
  BlockedStderrDeathTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }

  static void BlockStderr() {
    ::alarm(kHungSeconds);
    static Pipe full = MakeFullPipe();
    ::dup2(full.writer.get(), STDERR_FILENO);
  }
};

// A reason of a user, or a message of a node that was taken over.
TEST(LogDeathTest, ATextOfOthersStaysWithinItsLine) {
  EXPECT_EXIT(
      {
        InitLogging("test", "info");
        Log().info("cancelled: {}", "x\n2026-11-27T04:08:00 info forged \x1b[2J");
        std::exit(0);
      },
      testing::ExitedWithCode(0), "cancelled: x.n2026-11-27T04:08:00 info forged .x1b.2J\n$");
}

TEST_F(BlockedStderrDeathTest, LoggingDoesNotHoldUpTheLoop) {
  EXPECT_EXIT(
      {
        BlockStderr();
        InitLogging("test", "info");
        EventLoop loop;
        Timer timer(loop);
        loop.Post([&] {
          for (int i = 0; i < 100000; ++i) Log().info("a line of a hundred bytes {:80}", i);
        });
        timer.Start(std::chrono::milliseconds(1), [&] { loop.Stop(); });
        loop.Run();
        ::_exit(DroppedLogLines() > 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(BlockedStderrDeathTest, AProgramThatFailsEnds) {
  EXPECT_EXIT(
      {
        BlockStderr();
        InitLogging("test", "info");
        Log().error("about to end");
        PrintError("test: cannot go on");
        std::exit(3);
      },
      testing::ExitedWithCode(3), "");
}

TEST_F(BlockedStderrDeathTest, AnExitDeadlineIsKept) {
  EXPECT_EXIT(
      {
        BlockStderr();
        const ExitDeadline deadline(std::chrono::milliseconds(10), 7);
        ::pause();
      },
      testing::ExitedWithCode(7), "");
}

TEST_F(BlockedStderrDeathTest, ABrokenInvariantEndsTheProcess) {
  EXPECT_EXIT(
      {
        BlockStderr();
        InitLogging("test", "info");
        MUSTER_CHECK(false, "broken");
      },
      testing::KilledBySignal(SIGABRT), "");
}

TEST_F(BlockedStderrDeathTest, ACrashStillPrintsWhatWasLogged) {
  EXPECT_EXIT(
      {
        ::alarm(kHungSeconds);
        InitLogging("test", "info");
        for (int i = 0; i < 10000; ++i) Log().info("line {}", i);
        MUSTER_CHECK(false, "broken");
      },
      testing::KilledBySignal(SIGABRT),
      "line 9999(.|\n)*invariant broken|invariant broken(.|\n)*line 9999");
}

TEST_F(BlockedStderrDeathTest, AnExitPrintsTheLogAndThenTheError) {
  EXPECT_EXIT(
      {
        ::alarm(kHungSeconds);
        InitLogging("test", "info");
        for (int i = 0; i < 10000; ++i) Log().info("line {}", i);
        PrintError("test: cannot go on");
        std::exit(3);
      },
      testing::ExitedWithCode(3), "line 9999\ntest: cannot go on");
}

}  // namespace
}  // namespace muster
