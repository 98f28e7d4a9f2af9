// The guardian's binary with real processes.

#include "worker/guardian/guardian.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>

#include "common/base/json.h"
#include "common/base/locked_record.h"
#include "common/control_pipe/progress_page.h"
#include "worker/guardian/testing/guardian_testing.h"
#include "worker/process/cgroup.h"
#include "worker/process/record_file.h"

namespace muster {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(GuardianTest, ReportsAndRecordsAnExitCode) {
  Prepare(1);
  Send(Shell(1, 4, "echo first; echo last; exit 3"));
  const auto started = Expect<GuardianRankStarted>();
  EXPECT_EQ(started.rank, 4);
  EXPECT_GT(started.pid, 0);
  const auto exited = Expect<GuardianRankExited>();
  EXPECT_EQ(exited.rank, 4);
  EXPECT_EQ(exited.end.exit, (ProcessExit{.exit_code = 3}));
  EXPECT_THAT(exited.log_tail, ElementsAre("first", "last"));
  EXPECT_GE(exited.age_seconds, 0);
  const auto record = DecodeExitRecord(ReadFile(dir_ / ExitRecordName(1, 4)).value());
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  EXPECT_EQ(record->end.exit, exited.end.exit);
}

TEST_F(GuardianTest, ReportsAKillAtOnce) {
  Prepare(1);
  Send(Shell(1, 0, "exec sleep 60"));
  const auto started = Expect<GuardianRankStarted>();
  ::kill(static_cast<pid_t>(started.pid), SIGKILL);
  EXPECT_EQ(Expect<GuardianRankExited>().end.exit, (ProcessExit{.signal = SIGKILL}));
}

TEST_F(GuardianTest, AProgramThatCannotBeStartedIsAnExitWithTheReason) {
  Prepare(1);
  GuardianLaunch launch = Shell(1, 0, "");
  launch.argv = {"/no/such/program"};
  Send(launch);
  const auto exited = Expect<GuardianRankExited>();
  EXPECT_EQ(exited.end.exit.exit_code, 127);
  EXPECT_THAT(exited.log_tail, ElementsAre(HasSubstr("/no/such/program")));
}

TEST_F(GuardianTest, AProgramIsFoundInThePathOfItsEnvironment) {
  std::filesystem::create_directory(dir_ / "bin");
  std::filesystem::create_symlink("/bin/echo", dir_ / "bin/say");
  Prepare(1);
  GuardianLaunch launch = Shell(1, 0, "");
  launch.argv = {"say", "hello"};
  launch.environment = {"PATH=/nowhere:" + (dir_ / "bin")};
  Send(launch);
  EXPECT_THAT(Expect<GuardianRankExited>().log_tail, ElementsAre("hello"));
}

TEST_F(GuardianTest, AbortEndsADaemonThatIgnoresSigterm) {
  Prepare(1);
  // A grandchild in a session of its own, without parents, deaf to SIGTERM.
  Send(Shell(1, 0,
             "(setsid sh -c 'trap \"\" TERM HUP; echo $$ > daemon.pid; while :; do sleep 1; done' "
             "</dev/null >/dev/null 2>&1 &) ; while [ ! -s daemon.pid ]; do :; done; exit 0"));
  EXPECT_EQ(Expect<GuardianRankExited>().end.exit.exit_code, 0);
  const pid_t daemon = AwaitPid("daemon.pid");
  EXPECT_TRUE(IsAlive(daemon));
  Send(GuardianAbort{.generation = 1, .grace_seconds = 0.01, .reason = "test"});
  const auto quiesced = Expect<GuardianQuiesced>();
  EXPECT_EQ(quiesced.generation, 1);
  EXPECT_THAT(quiesced.unkillable_pids, IsEmpty());
  EXPECT_FALSE(IsAlive(daemon));
}

TEST_F(GuardianTest, AbortWithGraceLetsARankEndByItself) {
  Prepare(1);
  Send(Shell(1, 0, "trap 'exit 42' TERM; echo $$ > ready; while :; do sleep 0.01; done"));
  AwaitPid("ready");
  Send(GuardianAbort{.generation = 1, .grace_seconds = 8, .reason = "test"});
  EXPECT_EQ(Expect<GuardianRankExited>().end.exit, (ProcessExit{.exit_code = 42}));
  Expect<GuardianQuiesced>();
}

TEST_F(GuardianTest, DistinguishesARankThatItEndedFromOneThatEndedBefore) {
  Prepare(1);
  Send(Shell(1, 0, "exec sleep 60"));
  const auto first = Expect<GuardianRankStarted>();
  Send(Shell(1, 1, "exec sleep 60"));
  Expect<GuardianRankStarted>();
  // Stopped, it finds the abort and the end of the rank together.
  ::kill(guardian_pid_, SIGSTOP);
  Send(GuardianAbort{.generation = 1});
  ::kill(static_cast<pid_t>(first.pid), SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !IsAlive(static_cast<pid_t>(first.pid)); }));
  ::kill(guardian_pid_, SIGCONT);
  const auto killed = Expect<GuardianRankExited>();
  EXPECT_EQ(killed.rank, 0);
  EXPECT_FALSE(killed.end.ended);
  const auto ended = Expect<GuardianRankExited>();
  EXPECT_EQ(ended.end.exit.signal, SIGKILL);
  EXPECT_TRUE(ended.end.ended);
}

TEST_F(GuardianTest, AbortIsAnsweredAgainWhenRepeated) {
  Prepare(2);
  Send(GuardianAbort{.generation = 2});
  EXPECT_EQ(Expect<GuardianQuiesced>().generation, 2);
  Send(GuardianAbort{.generation = 2});
  EXPECT_EQ(Expect<GuardianQuiesced>().generation, 2);
}

// A guardian that was left running closed its connection to the worker of the next version, and
// again each time that this sent the command anew.
TEST_F(GuardianTest, ACommandThatOnlyANewerWorkerKnowsIsPassedOver) {
  Prepare(1);
  ASSERT_TRUE(link_.Send(R"({"type":"from_the_future","anything":[1]})").ok());
  Send(Shell(1, 0, "exit 0"));
  EXPECT_EQ(Expect<GuardianRankExited>().end.exit.exit_code, 0);
}

TEST_F(GuardianTest, RefusesOlderGenerations) {
  Prepare(5);
  Send(GuardianPrepare{.generation = 4});
  const auto refused = Expect<GuardianRefused>();
  EXPECT_EQ(refused.generation, 4);
  EXPECT_EQ(refused.newest, 5);
  Send(Shell(4, 0, "exit 0"));
  EXPECT_EQ(Expect<GuardianRefused>().generation, 4);
  Send(GuardianAbort{.generation = 4});
  EXPECT_EQ(Expect<GuardianRefused>().generation, 4);
  // The newest one is untouched by all that.
  Send(Shell(5, 0, "exit 0"));
  EXPECT_EQ(Expect<GuardianRankExited>().generation, 5);
}

TEST_F(GuardianTest, AnAbortFencesAGenerationThatWasNeverPrepared) {
  Prepare(1);
  Send(GuardianAbort{.generation = 2});
  EXPECT_EQ(Expect<GuardianQuiesced>().generation, 2);
  Send(GuardianPrepare{.generation = 1});
  EXPECT_EQ(Expect<GuardianRefused>().newest, 2);
}

TEST_F(GuardianTest, PreparingANewerGenerationEndsTheOlder) {
  Prepare(1);
  Send(Shell(1, 0, "trap '' TERM; while :; do sleep 1; done"));
  const auto started = Expect<GuardianRankStarted>();
  Prepare(2);
  EXPECT_FALSE(IsAlive(static_cast<pid_t>(started.pid)));
  Send(Shell(1, 0, "exit 0"));
  EXPECT_EQ(Expect<GuardianRefused>().generation, 1);
}

TEST_F(GuardianTest, ARankThatWasLaunchedIsNotLaunchedTwice) {
  Prepare(1);
  Send(Shell(1, 0, "echo x >> count; exec sleep 60"));
  Send(Shell(1, 0, "echo x >> count; exec sleep 60"));
  Expect<GuardianRankStarted>();
  Send(Shell(1, 1, "exit 0"));
  Expect<GuardianRankExited>();
  EXPECT_TRUE(Eventually([&] { return ReadFile(dir_ / "count").ok(); }));
  EXPECT_EQ(ReadFile(dir_ / "count").value(), "x\n");
}

TEST_F(GuardianTest, ALongOutputArrivesWhole) {
  Prepare(1);
  Send(Shell(1, 0,
             "i=0; while [ $i -lt 4000 ]; do echo 'a line that has exactly fifty bytes with "
             "its end..'; i=$((i+1)); done"));
  const auto exited = Expect<GuardianRankExited>();
  EXPECT_EQ(std::filesystem::file_size(LogPath(0)) % 4000, 0u);
  EXPECT_GT(std::filesystem::file_size(LogPath(0)), 200000u);
  EXPECT_EQ(exited.log_tail.size(), 20u);
}

TEST_F(GuardianTest, ARankHoldsNoDescriptorsButItsOwn) {
  Prepare(1);
  GuardianLaunch launch =
      Shell(1, 0, "for f in /proc/$$/fd/*; do [ -L $f ] && echo ${f##*/} && readlink $f; done");
  launch.control = true;
  Send(launch);
  const auto exited = Expect<GuardianRankExited>();
  EXPECT_THAT(exited.log_tail,
              ElementsAre("0", "/dev/null", "1", LogPath(0), "2", LogPath(0), "3",
                          HasSubstr("socket:"), "4", HasSubstr("/memfd:muster-progress")));
}

TEST_F(GuardianTest, ARanksEnvironmentIsExactlyWhatWasGiven) {
  Prepare(1);
  GuardianLaunch launch = Shell(1, 0, "");
  launch.argv = {"/usr/bin/env"};
  Send(launch);
  EXPECT_THAT(Expect<GuardianRankExited>().log_tail,
              ElementsAre("PATH=/usr/bin:/bin", "MUSTER_JOB_ID=0123456789"));
}

TEST_F(GuardianTest, TheMasterSocketIsBoundBeforeAndInherited) {
  Send(GuardianPrepare{
      .generation = 1, .master = MasterSocket::kListen, .bind_address = "127.0.0.1"});
  const auto prepared = Expect<GuardianPrepared>();
  ASSERT_EQ(prepared.error, "");
  ASSERT_GT(prepared.master_port, 0);
  GuardianLaunch launch = Shell(1, 0, "readlink /proc/$$/fd/5");
  launch.listen = true;
  Send(launch);
  EXPECT_THAT(Expect<GuardianRankExited>().log_tail, ElementsAre(HasSubstr("socket:")));
}

TEST_F(GuardianTest, TheEndOfTheStoreEndsTheRanksThatNeedIt) {
  Prepare(1);
  Send(Shell(1, 0, "echo $$ > ready; exec sleep 60"));
  AwaitPid("ready");
  GuardianLaunch store = Shell(1, kStoreRank, "exit 2");
  Send(store);
  const auto exited = Expect<GuardianRankExited>();
  EXPECT_EQ(exited.rank, 0);
  EXPECT_EQ(exited.end.exit, (ProcessExit{.signal = SIGKILL}));
  EXPECT_THAT(exited.log_tail, ElementsAre(HasSubstr("the store ended (exit code 2)")));
}

TEST_F(GuardianTest, AReservedPortIsFreeForTheProgramOfRank0) {
  Send(GuardianPrepare{
      .generation = 1, .master = MasterSocket::kBindOnly, .bind_address = "127.0.0.1"});
  const int port = Expect<GuardianPrepared>().master_port;
  ASSERT_GT(port, 0);
  const auto can_bind = [port] {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  };
  EXPECT_FALSE(can_bind());
  Send(Shell(1, 0, "exec sleep 60"));
  Expect<GuardianRankStarted>();
  EXPECT_TRUE(can_bind());
}

TEST_F(GuardianTest, AnAddressOfAnotherMachineIsAnErrorOfPrepare) {
  Send(GuardianPrepare{
      .generation = 1, .master = MasterSocket::kListen, .bind_address = "192.0.2.1"});
  EXPECT_THAT(Expect<GuardianPrepared>().error, HasSubstr("192.0.2.1"));
}

TEST_F(GuardianTest, ANewConnectionGetsTheWholeStateAgain) {
  Prepare(3);
  GuardianLaunch launch = Shell(3, 0, "exec sleep 60");
  launch.control = true;
  Send(launch);
  const auto started = Expect<GuardianRankStarted>();
  Send(Shell(3, 1, "exit 7"));
  Expect<GuardianRankExited>();
  link_.Close();
  descriptor_.reset();
  others_.clear();
  Reconnect();
  EXPECT_EQ(Expect<GuardianHello>().generation, 3);
  Expect<GuardianSynced>();
  EXPECT_TRUE(descriptor_.valid());
  EXPECT_TRUE(ProgressReader::Map(descriptor_.get()).ok());
  EXPECT_THAT(others_, Contains(GuardianEvent(GuardianPrepared{.generation = 3})));
  EXPECT_THAT(
      others_,
      Contains(GuardianEvent(GuardianRankStarted{.generation = 3, .rank = 0, .pid = started.pid})));
  const auto exited = std::find_if(others_.begin(), others_.end(), [](const GuardianEvent& e) {
    return std::holds_alternative<GuardianRankExited>(e);
  });
  ASSERT_NE(exited, others_.end());
  EXPECT_EQ(std::get<GuardianRankExited>(*exited).end.exit.exit_code, 7);
  EXPECT_TRUE(IsAlive(static_cast<pid_t>(started.pid)));
}

TEST_F(GuardianTest, KilledWithTheNineItTakesItsRanksAlong) {
  Prepare(1);
  Send(Shell(1, 0, "exec sleep 60"));
  const auto started = Expect<GuardianRankStarted>();
  ::kill(guardian_pid_, SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !IsAlive(static_cast<pid_t>(started.pid)); }));
  EXPECT_FALSE(IsRecordLocked(dir_ / kGuardianRecordName));
  // What a worker does with a dead guardian's cgroup.
  const auto record = nlohmann::json::parse(ReadFile(dir_ / kGuardianRecordName).value());
  EXPECT_EQ(record["pid"], guardian_pid_);
  const std::string cgroup = record["cgroup"];
  EXPECT_TRUE(Eventually([&] { return EndAbandonedCgroup(cgroup).ok(); }));
  EXPECT_FALSE(!cgroup.empty() && std::filesystem::exists(cgroup));
}

// Its ranks went on beside those of the next attempt, which the worker started on the same slots.
TEST_F(GuardianTest, EndsItsRanksAndItselfWhenItsDirectoryIsGone) {
  Prepare(1);
  GuardianLaunch launch = Shell(1, 0, "trap '' TERM; exec sleep 60");
  Send(launch);
  const auto started = Expect<GuardianRankStarted>();
  link_.Close();
  std::filesystem::remove_all(dir_.path());
  EXPECT_TRUE(Eventually([&] { return !IsAlive(static_cast<pid_t>(started.pid)); }));
  EXPECT_TRUE(Eventually([&] { return !IsAlive(guardian_pid_); }));
}

TEST_F(GuardianTest, LeavesWithItsWorkerWhenItWasAskedForNothing) {
  link_.Close();
  EXPECT_TRUE(Eventually([&] { return !IsAlive(guardian_pid_); }));
}

TEST_F(GuardianTest, SigtermEndsRanksAndGuardian) {
  Prepare(1);
  Send(Shell(1, 0, "trap '' TERM; while :; do sleep 1; done"));
  const auto started = Expect<GuardianRankStarted>();
  ::kill(guardian_pid_, SIGTERM);
  EXPECT_TRUE(Eventually([&] { return !IsAlive(guardian_pid_); }));
  EXPECT_FALSE(IsAlive(static_cast<pid_t>(started.pid)));
  const auto record = DecodeExitRecord(ReadFile(dir_ / ExitRecordName(1, 0)).value());
  ASSERT_TRUE(record.ok());
  EXPECT_TRUE(record->end.node_stopped) << "no fault of the rank";
  EXPECT_TRUE(std::filesystem::exists(dir_ / StoppedRecordName(1)));
  EXPECT_FALSE(std::filesystem::exists(dir_ / StoppedRecordName(2)));
}

TEST_F(GuardianTest, ReleaseLeavesNoRecordAndNoSocket) {
  Prepare(1);
  Send(GuardianRelease{});
  EXPECT_TRUE(Eventually([&] { return !IsAlive(guardian_pid_); }));
  EXPECT_FALSE(std::filesystem::exists(dir_ / kGuardianRecordName));
  EXPECT_FALSE(std::filesystem::exists(dir_ / kGuardianSocketName));
}

TEST_F(GuardianTest, ASecondGuardianOfTheSameJobIsRefused) {
  const auto second = Guardian::Start({.directory = dir_.path(), .job = "0123456789"});
  EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists);
}

TEST_F(GuardianTest, GarbageEndsTheConnectionAndNothingElse) {
  Prepare(1);
  Send(Shell(1, 0, "exec sleep 60"));
  const auto started = Expect<GuardianRankStarted>();
  ASSERT_TRUE(link_.Send("{garbage").ok());
  EXPECT_FALSE(link_.Receive(Deadline::After(std::chrono::seconds(5))).ok());
  Reconnect();
  EXPECT_EQ(Expect<GuardianHello>().pid, guardian_pid_);
  EXPECT_TRUE(IsAlive(static_cast<pid_t>(started.pid)));
}

TEST_F(GuardianTest, SaysOnceThatALimitOfMemoryIsNotEnforced) {
  const auto record = nlohmann::json::parse(ReadFile(dir_ / kGuardianRecordName).value());
  const std::string limit = record["cgroup"].get<std::string>() + "/memory.max";
  if (std::filesystem::exists(limit)) GTEST_SKIP() << "it is enforced here";
  for (const Generation generation : {1, 2}) {
    Send(GuardianPrepare{.generation = generation, .memory_limit_bytes = 4096});
    EXPECT_EQ(Expect<GuardianPrepared>().error, "");
  }
  const std::string log = ReadFile(GuardianLog()).value();
  const std::string note = "limit of 4096 bytes of memory is accounted, not enforced";
  ASSERT_THAT(log, HasSubstr(note));
  EXPECT_EQ(log.find(note), log.rfind(note));
}

// How often a process has gone to sleep.
std::uint64_t Sleeps(pid_t pid) {
  const auto text = ReadFile("/proc/" + std::to_string(pid) + "/status");
  constexpr std::string_view kField = "\nvoluntary_ctxt_switches:\t";
  const std::size_t at = text.ok() ? text->find(kField) : std::string::npos;
  return at != std::string::npos ? std::stoull(text->substr(at + kField.size())) : 0;
}

class GuardianWithoutDescriptorsTest : public GuardianTest {
 protected:
  std::size_t OpenFiles() const {
    const std::filesystem::directory_iterator files("/proc/" + std::to_string(guardian_pid_) +
                                                    "/fd");
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
  }
  // The guardian gets no descriptor of this number or a higher one.
  void Limit(std::size_t files) {
    rlimit limit{};
    ASSERT_EQ(::prlimit(guardian_pid_, RLIMIT_NOFILE, nullptr, &limit), 0);
    limit.rlim_cur = files;
    ASSERT_EQ(::prlimit(guardian_pid_, RLIMIT_NOFILE, &limit, nullptr), 0);
  }
};

TEST_F(GuardianWithoutDescriptorsTest, AnotherWorkerTakesTheConnectionOver) {
  Limit(OpenFiles());
  Reconnect();
  EXPECT_EQ(Expect<GuardianHello>().pid, guardian_pid_);
}

TEST_F(GuardianWithoutDescriptorsTest, AConnectionThatWaitsDoesNotMakeItSpin) {
  // A generation, without which it would end with its worker.
  Prepare(1);
  const std::size_t connected = OpenFiles();
  link_.Close();
  ASSERT_TRUE(Eventually([&] { return OpenFiles() == connected - 1; }));
  Limit(3);
  Reconnect();
  const std::uint64_t before = Sleeps(guardian_pid_);
  EXPECT_TRUE(Eventually([&] { return Sleeps(guardian_pid_) >= before + 2; }));
  Limit(64);
  EXPECT_EQ(Expect<GuardianHello>().generation, 1);
}

}  // namespace
}  // namespace muster
