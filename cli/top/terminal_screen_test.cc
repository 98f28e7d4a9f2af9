#include "cli/top/terminal_screen.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <thread>

namespace muster {
namespace {

TEST(RedrawText, SendsTheLinesThatDiffer) {
  EXPECT_EQ(RedrawText({"a", "b"}, {"a", "b"}), "");
  EXPECT_EQ(RedrawText({"a", "b"}, {"a", "c"}), "\x1b[2;1H\x1b[Kc\x1b[0m");
  EXPECT_EQ(RedrawText({"a", "b"}, {"a"}), "\x1b[2;1H\x1b[K\x1b[0m");
  EXPECT_EQ(RedrawText({}, {"", "b"}), "\x1b[2;1H\x1b[Kb\x1b[0m");
}

TEST(TakeKey, ReadsLettersAndSequencesAndSkipsTheRest) {
  std::string input = "x\x1b[A\x1b[15~j\r\x1b[6;3Hq";
  EXPECT_EQ(TakeKey(&input), TerminalKey::kUp);
  EXPECT_EQ(TakeKey(&input), TerminalKey::kDown);
  EXPECT_EQ(TakeKey(&input), TerminalKey::kEnter);
  EXPECT_EQ(TakeKey(&input), TerminalKey::kQuit);
  EXPECT_EQ(TakeKey(&input), TerminalKey::kNone);
  input = "\x1b";
  EXPECT_EQ(TakeKey(&input), TerminalKey::kBack);
}

// A pseudo-terminal of 100 columns and 30 rows.
class TerminalScreenTest : public testing::Test {
 protected:
  void SetUp() override {
    const winsize size{30, 100, 0, 0};
    int master = -1, slave = -1;
    ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, &size), 0);
    master_ = UniqueFd(master);
    slave_ = UniqueFd(slave);
    ASSERT_EQ(::fcntl(master, F_SETFL, O_NONBLOCK), 0);
  }
  std::string Sent() {
    std::string text;
    char bytes[4096];
    for (ssize_t n; (n = ::read(master_.get(), bytes, sizeof bytes)) > 0;)
      text.append(bytes, static_cast<std::size_t>(n));
    return text;
  }
  bool Echoes() const {
    termios now{};
    EXPECT_EQ(::tcgetattr(slave_.get(), &now), 0);
    return (now.c_lflag & ECHO) != 0 && (now.c_lflag & ICANON) != 0;
  }

  UniqueFd master_;
  UniqueFd slave_;
};

TEST_F(TerminalScreenTest, PutsTheTerminalBackAsItWas) {
  ASSERT_TRUE(Echoes());
  {
    const auto screen = TerminalScreen::Open(slave_.get(), slave_.get());
    ASSERT_TRUE(screen.ok());
    EXPECT_FALSE(Echoes());
    EXPECT_EQ((*screen)->size().columns, 100);
    EXPECT_EQ((*screen)->size().rows, 30);
    EXPECT_NE(Sent().find("\x1b[?1049h"), std::string::npos);
  }
  EXPECT_TRUE(Echoes());
  EXPECT_TRUE(Sent().ends_with("\x1b[?1049l"));
}

TEST_F(TerminalScreenTest, DrawsEverythingOnceAndThenWhatChanged) {
  const auto screen = TerminalScreen::Open(slave_.get(), slave_.get());
  ASSERT_TRUE(screen.ok());
  (*screen)->Draw({"one", "two"});
  EXPECT_NE(Sent().find("one"), std::string::npos);
  (*screen)->Draw({"one", "three"});
  const std::string second = Sent();
  EXPECT_EQ(second.find("one"), std::string::npos);
  EXPECT_NE(second.find("three"), std::string::npos);
  const winsize smaller{20, 60, 0, 0};
  ASSERT_EQ(::ioctl(master_.get(), TIOCSWINSZ, &smaller), 0);
  (*screen)->Draw({"one", "three"});
  EXPECT_NE(Sent().find("one"), std::string::npos);
}

TEST_F(TerminalScreenTest, AKeyOrAWakeEndsTheWait) {
  const auto screen = TerminalScreen::Open(slave_.get(), slave_.get());
  ASSERT_TRUE(screen.ok());
  ASSERT_EQ(::write(master_.get(), "\x1b[B", 3), 3);
  EXPECT_EQ((*screen)->ReadKey(std::chrono::seconds(10)), TerminalKey::kDown);
  EXPECT_EQ((*screen)->ReadKey(Duration::zero()), TerminalKey::kNone);
  std::thread waker([&] { (*screen)->Wake(); });
  EXPECT_EQ((*screen)->ReadKey(std::chrono::seconds(10)), TerminalKey::kNone);
  waker.join();
}

TEST_F(TerminalScreenTest, AResizeEndsTheWait) {
  const auto screen = TerminalScreen::Open(slave_.get(), slave_.get());
  ASSERT_TRUE(screen.ok());
  const TimePoint begun = SystemClock().Now();
  std::thread resizer([] { ::kill(::getpid(), SIGWINCH); });
  EXPECT_EQ((*screen)->ReadKey(std::chrono::seconds(30)), TerminalKey::kNone);
  EXPECT_LT(SystemClock().Now() - begun, std::chrono::seconds(20));
  resizer.join();
}

TEST_F(TerminalScreenTest, ATerminalThatIsGoneIsTheEnd) {
  const auto screen = TerminalScreen::Open(slave_.get(), slave_.get());
  ASSERT_TRUE(screen.ok());
  master_.reset();
  EXPECT_EQ((*screen)->ReadKey(std::chrono::seconds(10)), TerminalKey::kQuit);
  (*screen)->Draw({"no terminal shows it"});
}

}  // namespace
}  // namespace muster
