// What a case may do to the process that it shares with others, for run_cases_test.py.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace {

TEST(Sound, Passes) {}
TEST(Sound, IsSkipped) { GTEST_SKIP() << "no such\ndevice"; }
TEST(Unsound, Fails) {
  std::puts("what it printed");
  FAIL() << "as planned";
}
TEST(Unsound, Crashes) { ::raise(SIGSEGV); }
TEST(Unsound, Exits) { std::_Exit(0); }
TEST(Unsound, Hangs) {
  for (;;) ::pause();
}
TEST(Leaves, AVariable) { ::setenv("MUSTER_LEFT", "1", 1); }
TEST(Leaves, NoVariable) { ::unsetenv("PATH"); }
TEST(Leaves, TheDirectory) { std::filesystem::current_path("/"); }
TEST(Leaves, TheMask) { ::umask(0); }
TEST(Leaves, ALimit) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  --limit.rlim_cur;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}
TEST(Leaves, ASignal) { ::signal(SIGXFSZ, SIG_IGN); }
TEST(Last, Passes) {
  EXPECT_EQ(std::getenv("MUSTER_LEFT"), nullptr);
  EXPECT_NE(std::getenv("PATH"), nullptr);
}

}  // namespace
