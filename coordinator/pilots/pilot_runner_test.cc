#include "coordinator/pilots/pilot_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "common/base/cluster_paths.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/security/certificate_authority.h"
#include "common/security/revocation.h"
#include "common/slurm/testing/fake_slurm.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;

// A Slurm that keeps its jobs in a file, one line each, numbered from 1.
constexpr char kSbatch[] = R"sh(
n=1
while read -r line; do n=$((n + 1)); done < "$jobs"
for word in "$@"; do case $word in --comment=*) comment=${word#--comment=};; esac; done
s=$(printf '\037')
echo "$n$s$n${s}muster-pilot${s}ann${s}PENDING${s}None${s}${s}1${s}${s}N/A${s}N/A${s}$comment" >> "$jobs"
echo "$n"
)sh";

class PilotRunnerTest : public testing::Test {
 protected:
  PilotRunnerTest() {
    EXPECT_TRUE(CertificateAuthority::Create(security_, "lab", SystemClock().UnixMillis()).ok());
    EXPECT_TRUE(WriteFileAtomically(slurm_.path() + "/jobs", "").ok());
    const std::string jobs = "jobs=" + slurm_.path() + "/jobs\n";
    slurm_.Install("sbatch", jobs + kSbatch);
    slurm_.Install("squeue",
                   jobs + "while IFS= read -r line; do printf '%s\\n' \"$line\"; done < \"$jobs\"");
    slurm_.Install("scancel", "exit 0");
  }
  ~PilotRunnerTest() override { Stop(); }

  void Configure(const std::string& text = "max_nodes: 4\n") {
    ASSERT_TRUE(WriteFileAtomically(dir_ / "pilots.yaml", text).ok());
  }

  void Start() {
    loop_ = std::make_unique<EventLoop>();
    runner_ = std::make_unique<PilotRunner>(
        *loop_,
        PilotRunnerOptions{.dir = dir_.path(),
                           .config_file = dir_ / "pilots.yaml",
                           .status_file = dir_ / "status.json",
                           .coordinator = listens_,
                           .join_address = "10.0.0.1:7072",
                           .security_dir = security_,
                           .user = "ann",
                           .environment = {{"PATH", slurm_.path()}},
                           .look_every = 10ms,
                           .list_every = 100ms,
                           .list_soon = 20ms},
        PilotHooks{.facts =
                       [this] {
                         const std::lock_guard lock(mutex_);
                         return facts_;
                       },
                   .drain = [](const DrainPoolNode&) {},
                   .note =
                       [this](const ClusterNote& note) {
                         const std::lock_guard lock(mutex_);
                         timeline_ += std::string(note.kind) + ": " + note.message + "\n";
                       },
                   .declare = [](const PoolDeclared&) {}});
    loop_->Post([this] { runner_->Start(); });
    thread_ = std::thread([this] { loop_->Run(); });
  }
  void Stop() {
    if (!thread_.joinable()) return;
    loop_->Stop();
    thread_.join();
    runner_.reset();
  }

  void Need(int nodes) {
    const std::lock_guard lock(mutex_);
    facts_.needs = {{"job j lacks nodes", nodes, false, {}}};
  }
  void HasNode(const std::string& name, const std::string& pilot) {
    const std::lock_guard lock(mutex_);
    facts_.nodes.push_back({.name = name, .pilot = pilot});
  }
  std::string Timeline() {
    const std::lock_guard lock(mutex_);
    return timeline_;
  }

  json Status() const {
    const auto text = ReadFile(dir_ / "status.json");
    return text.ok() ? json::parse(*text) : json::object();
  }
  json Pilots() const { return Status().value("pilots", json::array()); }
  // The key of the first pilot.
  std::string Key() const { return Pilots().empty() ? "" : Pilots()[0]["key"].get<std::string>(); }
  // As the gauge has them.
  std::map<std::string, int> Counts() {
    std::promise<std::map<std::string, int>> counts;
    loop_->Post([&] { counts.set_value(runner_->counts()); });
    return counts.get_future().get();
  }
  bool StateIs(const std::string& state) const {
    const json pilots = Pilots();
    return !pilots.empty() && pilots[0]["state"] == state;
  }
  bool ConditionHas(const std::string& part) const {
    return Status().value("conditions", json::array()).dump().find(part) != std::string::npos;
  }
  std::string Place(const std::string& key) const { return dir_ / ("pilots/" + key); }

  int Count(const std::string& command) const {
    int count = 0;
    const std::string calls = slurm_.Calls();
    for (std::size_t at = 0; (at = calls.find(command + " ", at)) != std::string::npos; ++at)
      ++count;
    return count;
  }
  void SetJob(const std::string& id, const std::string& key, const std::string& state,
              const std::string& nodes) {
    const std::string s = "\x1f";
    const std::string line = id + s + id + s + "muster-pilot" + s + "ann" + s + state + s + "None" +
                             s + nodes + s + "1" + s + nodes + s + "N/A" + s + "N/A" + s +
                             "muster key=" + key + " at " + dir_.path() + "/pilots/\n";
    ASSERT_TRUE(WriteFileAtomically(slurm_.path() + "/jobs", line).ok());
    // A batch script that begins makes the coordinator look.
    std::error_code ignored;
    if (!std::filesystem::exists(Place(key), ignored)) return;
    ASSERT_TRUE(WriteFileAtomically(Place(key) + "/started", id + "\n").ok());
  }

  slurm::FakeSlurm slurm_;
  TempDirForTest dir_;
  const std::string security_ = dir_ / "security";
  std::mutex mutex_;
  PoolFacts facts_;
  std::string timeline_;
  std::string listens_ = "10.0.0.1:7070";
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<PilotRunner> runner_;
  std::thread thread_;
};

TEST_F(PilotRunnerTest, AsksSlurmForNothingWithoutAFile) {
  Need(1);
  Start();
  Configure("max_nodes: two\n");
  ASSERT_TRUE(Eventually([&] { return ConditionHas("pilots.yaml:1: max_nodes"); }));
  EXPECT_EQ(slurm_.Calls(), "");
  Configure();
  ASSERT_TRUE(Eventually([&] { return StateIs("pending"); }));
  EXPECT_FALSE(ConditionHas("max_nodes"));
}

TEST_F(PilotRunnerTest, AsksForNoPilotThatCouldNotReachTheCoordinator) {
  Need(1);
  listens_ = "0.0.0.0:7070";
  Configure();
  Start();
  ASSERT_TRUE(Eventually([&] { return ConditionHas("0.0.0.0:7070 means every address"); }));
  EXPECT_EQ(slurm_.Calls(), "");
  Configure("max_nodes: 4\ncoordinator: 10.0.0.1:7070\n");
  ASSERT_TRUE(Eventually([&] { return StateIs("pending"); }));
}

TEST_F(PilotRunnerTest, ABadFileKeepsTheOldOneAndIsReported) {
  Configure();
  Start();
  ASSERT_TRUE(Eventually([&] { return Status().contains("pilots"); }));
  Configure("max_nodes: 4\nmin_nodez: 3\n");
  ASSERT_TRUE(Eventually([&] { return ConditionHas("pilots.yaml:2: min_nodez"); }));
  Need(1);
  EXPECT_TRUE(Eventually([&] { return StateIs("pending"); }));
}

TEST_F(PilotRunnerTest, GivesEachNodeATokenOfItsOwnName) {
  Configure();
  Need(1);
  Start();
  ASSERT_TRUE(Eventually([&] { return StateIs("pending"); }));
  const std::string key = Key();
  SetJob("1", key, "RUNNING", "n7");
  const std::string token = Place(key) + "/tokens/n7";
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(token); }));
  EXPECT_EQ(std::filesystem::status(token).permissions(), std::filesystem::perms(0600));
  EXPECT_THAT(*ReadFile(token), HasSubstr(" join=10.0.0.1:7072\n"));
  const auto book = ReadFile(SecurityPaths{security_}.JoinTokens());
  ASSERT_TRUE(book.ok());
  EXPECT_EQ(json::parse(*book)["tokens"][0]["node"], "n7");
  EXPECT_THAT(Timeline(), HasSubstr("pilot_started: pilot " + key + " (Slurm job 1) runs on n7"));
  EXPECT_EQ(Count("sbatch"), 1);
}

TEST_F(PilotRunnerTest, CountsThoseThatHaveNotEndedByState) {
  Configure();
  Need(2);
  Start();
  ASSERT_TRUE(Eventually([&] { return Counts() == std::map<std::string, int>{{"pending", 2}}; }));
  ASSERT_TRUE(Eventually([&] { return Pilots().size() == 2; }));
  const std::string key = Key();
  SetJob("1", key, "RUNNING", "n7");  // of the other one Slurm knows nothing any more
  ASSERT_TRUE(Eventually([&] { return Counts().count("running") == 1; }));
  EXPECT_EQ(Counts().at("running"), 1);
}

TEST_F(PilotRunnerTest, ALaterCoordinatorAdoptsWhatIsThere) {
  Configure();
  Need(1);
  Start();
  ASSERT_TRUE(Eventually([&] { return StateIs("pending"); }));
  Stop();
  const std::string key = Key();
  // As if it had been killed right behind sbatch.
  ASSERT_TRUE(std::filesystem::remove(Place(key) + "/submission.json"));
  slurm_.ForgetCalls();
  Start();
  ASSERT_TRUE(Eventually([&] { return Count("squeue") > 0 && StateIs("pending"); }));
  EXPECT_EQ(Pilots().size(), 1u);
  EXPECT_EQ(Pilots()[0]["slurm_job_id"], 1);
  EXPECT_EQ(Count("sbatch"), 0);
}

TEST_F(PilotRunnerTest, OneThatWasKilledBeforeSbatchAsksAnewAndKeepsNoHalf) {
  Configure();
  ASSERT_TRUE(MakeDirectories(dir_ / "pilots", 0700).ok());
  ASSERT_TRUE(MakeDirectories(Place("p1") + "/tokens", 0700).ok());
  Need(1);
  Start();
  ASSERT_TRUE(Eventually([&] { return StateIs("pending"); }));
  EXPECT_FALSE(std::filesystem::exists(Place("p1")));
  EXPECT_EQ(Count("sbatch"), 1);
}

TEST_F(PilotRunnerTest, OneThatWasKilledRightBeforeSbatchSubmitsThatPilot) {
  Configure();
  Need(1);
  Start();
  ASSERT_TRUE(Eventually([&] { return StateIs("pending"); }));
  Stop();
  const std::string key = Key();
  ASSERT_TRUE(std::filesystem::remove(Place(key) + "/submission.json"));
  ASSERT_TRUE(WriteFileAtomically(slurm_.path() + "/jobs", "").ok());
  slurm_.ForgetCalls();
  Start();
  ASSERT_TRUE(Eventually([&] { return Count("sbatch") == 1 && StateIs("pending"); }));
  EXPECT_EQ(Pilots().size(), 1u);
  EXPECT_EQ(Key(), key);
}

TEST_F(PilotRunnerTest, AnAnswerOfSlurmThatWasLostMakesNoSecondPilot) {
  slurm_.Install("sbatch", "echo 'sbatch: error: Socket timed out on send/recv operation'; exit 1");
  Configure();
  Need(1);
  Start();
  ASSERT_TRUE(Eventually([&] { return Count("sbatch") >= 1 && StateIs("submitting"); }));
  const std::string key = Key();
  SetJob("7", key, "PENDING", "");
  ASSERT_TRUE(Eventually([&] { return StateIs("pending"); }));
  EXPECT_EQ(Pilots()[0]["slurm_job_id"], 7);
  EXPECT_EQ(Key(), key);
  // One that came late, too.
  const auto jobs = ReadFile(slurm_.path() + "/jobs");
  std::string second = *jobs;
  second.replace(0, 3,
                 "8\x1f"
                 "8");
  ASSERT_TRUE(WriteFileAtomically(slurm_.path() + "/jobs", *jobs + second).ok());
  ASSERT_TRUE(Eventually([&] { return Count("scancel") == 1; }));
  EXPECT_THAT(slurm_.Calls(), HasSubstr("scancel 8"));
}

TEST_F(PilotRunnerTest, AJobOfAnUnknownPilotIsCancelled) {
  SetJob("9", "p0", "RUNNING", "n1");
  Configure();
  Start();
  ASSERT_TRUE(Eventually([&] { return Count("scancel") == 1; }));
  EXPECT_THAT(slurm_.Calls(), HasSubstr("scancel 9"));
}

TEST_F(PilotRunnerTest, ARefusalOfSlurmIsReportedAndNotRetriedAtOnce) {
  slurm_.Install("sbatch", "echo 'sbatch: error: invalid partition specified: x'; exit 1");
  Configure();
  Need(1);
  Start();
  ASSERT_TRUE(Eventually([&] { return ConditionHas("invalid partition specified: x"); }));
  ASSERT_TRUE(Eventually([&] { return ConditionHas("failed 1 times in a row"); }));
  EXPECT_EQ(Count("sbatch"), 1);
  EXPECT_EQ(Pilots().size(), 0u);
}

TEST_F(PilotRunnerTest, AnEndedPilotsCertificatesAreRefused) {
  Configure();
  Need(1);
  Start();
  ASSERT_TRUE(Eventually([&] { return StateIs("pending"); }));
  const std::string key = Key();
  SetJob("1", key, "RUNNING", "n7");
  ASSERT_TRUE(Eventually([&] { return StateIs("running"); }));
  HasNode("n7", key);
  const auto authority = CertificateAuthority::Open(security_);
  ASSERT_TRUE(authority.ok());
  const auto issued = authority->Issue({Role::kNode, "n7", "lab"}, 1h, SystemClock().UnixMillis());
  const auto other = authority->Issue({Role::kNode, "n8", "lab"}, 1h, SystemClock().UnixMillis());
  Need(0);
  Stop();
  SetJob("1", key, "COMPLETED", "n7");
  Start();
  ASSERT_TRUE(Eventually([&] { return Timeline().find("pilot_ended") != std::string::npos; }));
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(Place(key) + "/end.json"); }));
  const auto list = LoadRevocations(SecurityPaths{security_}.RevokedCertificates());
  ASSERT_TRUE(list.ok());
  EXPECT_FALSE(list->Check(*ReadCertificate(issued->certificate_pem)).ok());
  EXPECT_TRUE(list->Check(*ReadCertificate(other->certificate_pem)).ok());
}

TEST_F(PilotRunnerTest, ABadNodeStaysExcludedForALaterCoordinator) {
  Configure();
  Need(1);
  Start();
  ASSERT_TRUE(Eventually([&] { return StateIs("pending"); }));
  const std::string key = Key();
  SetJob("1", key, "RUNNING", "n7");
  {
    const std::lock_guard lock(mutex_);
    facts_.nodes = {{.name = "n7", .state = PoolNodeState::kBad, .pilot = key}};
  }
  ASSERT_TRUE(Eventually([&] { return Count("scancel") == 1; }));
  Stop();
  SetJob("1", key, "CANCELLED", "n7");
  Need(2);
  Start();
  ASSERT_TRUE(Eventually([&] { return Pilots().size() == 2; }));
  ASSERT_TRUE(Eventually([&] { return StateIs("pending"); }));
  EXPECT_THAT(*ReadFile(Place(Pilots()[1]["key"]) + "/run.sbatch"), HasSubstr("--exclude=n7"));
}

}  // namespace
}  // namespace muster
