// OwnAddress on a real network of two interfaces, in a namespace that the test makes for itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "common/net/interfaces.h"
#include "common/process/run_child.h"

namespace muster {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kUnavailable[] = "cannot make a network namespace";

// Both ends of one virtual cable, each with a network of its own.
constexpr char kTwoInterfaces[] =
    "link set lo up\n"
    "link add fabric0 type veth peer name login0\n"
    "addr add 10.1.0.4/16 dev fabric0\n"
    "addr add 192.168.7.4/24 dev login0\n"
    "link set fabric0 up\n"
    "link set login0 up\n";
constexpr char kDefaultRoute[] = "route add default via 192.168.7.1 dev login0\n";

bool Ip(const std::string& batch) {
  const auto program = FindProgram("ip", "/usr/sbin:/sbin:/usr/bin:/bin", "/");
  if (!program.ok()) return false;
  const auto outcome = RunChild(
      {.spawn = {.argv = {*program, "-batch", "-"}, .environment = {"LC_ALL=C"}}, .input = batch});
  return outcome.ok() && outcome->ok();
}

bool EnterNamespace() {
  if (::geteuid() == 0 && ::unshare(CLONE_NEWNET) == 0) return true;
  const std::string uid = std::to_string(::geteuid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  std::ofstream("/proc/self/uid_map") << "0 " + uid + " 1";
  return true;
}

// What `look` says in a process of its own, in a namespace with nothing but what `batch` makes.
std::string InNamespace(const std::string& batch, const std::function<std::string()>& look) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t pid = ::fork();
  if (pid == 0) {
    const std::string said = EnterNamespace() && Ip(batch) ? look() : kUnavailable;
    const bool written = ::write(ends[1], said.data(), said.size()) >= 0;
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  ::waitpid(pid, nullptr, 0);
  return said;
}

std::string Said(const Result<ChosenAddress>& chosen) {
  return chosen.ok() ? chosen->why : chosen.status().message();
}

std::string WhyIn(const std::string& batch, const std::string& wanted, const std::string& peer) {
  return InNamespace(batch, [&] {
    const InterfaceChoice choice =
        wanted.empty() ? InterfaceChoice{} : *InterfaceChoice::Parse(wanted);
    return Said(ChooseOwnAddress(choice, peer));
  });
}

class TwoInterfaces : public testing::Test {
 protected:
  void SetUp() override {
    if (WhyIn(kTwoInterfaces, "", "") == kUnavailable)
      GTEST_SKIP() << "needs network namespaces and the program ip";
  }
};

TEST_F(TwoInterfaces, ThePeerDecidesAndThenTheDefaultRoute) {
  const std::string both = std::string(kTwoInterfaces) + kDefaultRoute;
  EXPECT_THAT(WhyIn(both, "", "10.1.0.9:7700"), StartsWith("10.1.0.4 on fabric0: "));
  EXPECT_THAT(WhyIn(both, "", "192.168.7.9:7700"), StartsWith("192.168.7.4 on login0: "));
  EXPECT_THAT(WhyIn(both, "", "203.0.113.1"), StartsWith("192.168.7.4 on login0: "));
  EXPECT_THAT(WhyIn(both, "", "127.0.0.1:7700"),
              StartsWith("192.168.7.4 on login0: the interface of the default route"));
  EXPECT_THAT(WhyIn(both, "", ""), HasSubstr("default route"));
}

TEST_F(TwoInterfaces, AnInterfaceOrItsNetworkCanBeRequested) {
  const std::string both = std::string(kTwoInterfaces) + kDefaultRoute;
  EXPECT_THAT(WhyIn(both, "fabric0", "192.168.7.9"), StartsWith("10.1.0.4 on fabric0: "));
  EXPECT_THAT(WhyIn(both, "10.1.0.0/16", "192.168.7.9"), StartsWith("10.1.0.4 on fabric0: "));
  EXPECT_THAT(WhyIn(both, "eth7", ""), HasSubstr("names no interface of this node"));
}

TEST_F(TwoInterfaces, APeerOnThisVeryNodeNamesTheAddress) {
  EXPECT_THAT(WhyIn(kTwoInterfaces, "", "10.1.0.4:7700"), HasSubstr("10.1.0.4 on fabric0: "));
}

TEST_F(TwoInterfaces, ANodeWithNothingButLoopbackReachesNoOther) {
  EXPECT_THAT(WhyIn("link set lo up\n", "", ""), StartsWith("127.0.0.1: "));
  EXPECT_THAT(WhyIn("link set lo up\n", "", "10.1.0.9"),
              HasSubstr("no address of this node reaches 10.1.0.9"));
}

}  // namespace
}  // namespace muster
