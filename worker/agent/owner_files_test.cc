#include "worker/agent/owner_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/base/files.h"
#include "worker/agent/owner_answers.h"
#include "worker/agent/testing/fake_launcher.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const JobId kJob{"0123456789"};

class OwnerFilesTest : public testing::Test {
 protected:
  CheckpointCommitted Committed(const std::string& account) const {
    return {.job = kJob,
            .generation = 2,
            .output_dir = dir_.path(),
            .checkpoint = {.step = 20, .generation = 2, .directory = "step-00000020-g2"},
            .prune = {"step-00000010-g1"},
            .account = account};
  }
  void SetUp() override {
    for (const char* name : {"step-00000010-g1", "step-00000020-g2"})
      fs::create_directories(dir_ / (std::string("checkpoints/") + name));
  }

  FakeLauncher launcher_;
  const TempDirForTest dir_;
  OwnerFiles files_{launcher_.socket()};
};

TEST_F(OwnerFilesTest, OneServerForEachAccountDoesWhatTheWorkerWouldHaveDone) {
  const ManifestWritten written = files_.WriteManifest(Committed("ada"));
  EXPECT_EQ(written.error, "");
  EXPECT_THAT(written.pruned, ElementsAre("step-00000010-g1"));
  EXPECT_TRUE(fs::exists(dir_ / "checkpoints/step-00000020-g2/manifest.json"));
  EXPECT_FALSE(files_.ShardIsBeingWritten("ada", {dir_.path()}));
  std::ofstream(dir_ / "checkpoints/step-00000020-g2/rank-00000.shard.tmp") << "x";
  EXPECT_TRUE(files_.ShardIsBeingWritten("ada", {dir_.path()}));
  EXPECT_EQ(launcher_.started(), 1);
  EXPECT_FALSE(files_.ShardIsBeingWritten("bob", {}));
  EXPECT_EQ(launcher_.started(), 2);
}

TEST_F(OwnerFilesTest, LogsAreRead) {
  const muster::ReadLog request{
      .request_id = 7, .job = kJob, .generation = 1, .output_dir = dir_.path(), .account = "ada"};
  const LogChunk missing = files_.ReadLog(request);
  EXPECT_EQ(missing.request_id, 7u);
  EXPECT_THAT(missing.error, HasSubstr("No such file"));
  fs::create_directories(dir_ / "logs/1");
  std::ofstream(dir_ / "logs/1/rank-0.log") << "hello\n";
  EXPECT_EQ(files_.ReadLog(request).data, "hello\n");
}

TEST_F(OwnerFilesTest, AServerThatIsGoneIsStartedAgain) {
  EXPECT_EQ(files_.WriteManifest(Committed("ada")).error, "");
  launcher_.KillServers();
  EXPECT_EQ(files_.WriteManifest(Committed("ada")).error, "");
  EXPECT_EQ(launcher_.started(), 2);
}

// The worker asked it again without end.
TEST(HostileFileServer, ThatClosesEachCallIsAnErrorAndIsNotAskedForEver) {
  FakeLauncher launcher([](int fd) {
    const Deadline end = Deadline::After(std::chrono::seconds(5));
    PacketSocket worker{UniqueFd(fd)};
    while (!end.Expired() && worker.Receive(end).ok()) {
    }
  });
  OwnerFiles files(launcher.socket());
  const Deadline soon = Deadline::After(std::chrono::seconds(1));
  const LogChunk chunk = files.ReadLog({.request_id = 7, .job = kJob, .account = "ada"});
  EXPECT_FALSE(soon.Expired());
  EXPECT_THAT(chunk.error, HasSubstr("refuses calls"));
  EXPECT_EQ(launcher.started(), 1);
}

TEST(HostileFileServer, ThatEndsWithEachCallIsStartedOnceMore) {
  FakeLauncher launcher([](int fd) {
    PacketSocket worker{UniqueFd(fd)};
    (void)worker.Receive(Deadline::After(std::chrono::seconds(5)));
  });
  OwnerFiles files(launcher.socket());
  EXPECT_THAT(files.ReadLog({.request_id = 7, .job = kJob, .account = "ada"}).error,
              HasSubstr("has ended"));
  EXPECT_EQ(launcher.started(), 2);
}

TEST_F(OwnerFilesTest, WithoutAnAccountNothingIsDone) {
  EXPECT_THAT(files_.WriteManifest(Committed("")).error, HasSubstr("no `account`"));
  EXPECT_THAT(files_.WriteManifest(Committed("stranger")).error,
              HasSubstr("this node has no account 'stranger'"));
  EXPECT_FALSE(fs::exists(dir_ / "checkpoints/step-00000020-g2/manifest.json"));
  EXPECT_FALSE(files_.ProveTerminated("stranger", dir_.path(), kJob, 1).has_value())
      << "not known is not proved";
  const auto proof = files_.ProveTerminated("stranger", dir_ / "missing", kJob, 1);
  ASSERT_TRUE(proof.has_value()) << "nothing was started there";
  EXPECT_THAT(proof->unkillable, IsEmpty());
}

TEST_F(OwnerFilesTest, ProofsComeFromTheRecordsOfTheGuardian) {
  fs::create_directories(dir_ / "exits");
  ASSERT_TRUE(WriteFileAtomically(dir_ / ExitRecordName(2, 0),
                                  EncodeExitRecord({.generation = 2,
                                                    .rank = 0,
                                                    .end = {.exit = {.exit_code = 3}},
                                                    .log_tail = {"last"}}))
                  .ok());
  const auto proof = files_.ProveTerminated("ada", dir_.path(), kJob, 2);
  ASSERT_TRUE(proof.has_value());
  EXPECT_THAT(proof->unkillable, IsEmpty());
  ASSERT_EQ(proof->exited.size(), 1u);
  EXPECT_EQ(proof->exited[0].job, kJob);
  EXPECT_EQ(proof->exited[0].end.exit.exit_code, 3);
  EXPECT_THAT(proof->exited[0].log_tail, ElementsAre("last"));
}

// It ended the worker, and with it the node.
TEST_F(OwnerFilesTest, AnswersOfAnotherFormAreRefused) {
  for (const Json& wrong : {Json(7), Json("text"), Json::array({1}), Json::object({{"a", 1}})}) {
    Json answer;
    for (const char* name : {"code", "message", "retryable", "stopped", "exited", "unkillable",
                             "removed", "report", "prune_error", "written", "asks"})
      answer[name] = wrong;
    EXPECT_FALSE(PartIn(answer).status.ok());
    EXPECT_FALSE(PartIn(answer).retryable || FlagIn(answer, "written"));
    EXPECT_FALSE(ProofIn(answer, kJob, 1).has_value());
    EXPECT_EQ(TextIn(answer, "prune_error").empty(), !wrong.is_string());
    EXPECT_THAT(TextsIn(answer, "removed"), IsEmpty());
    EXPECT_EQ(ReportIn<LogChunk>(answer).status().code(), StatusCode::kDataLoss);
  }
}

TEST_F(OwnerFilesTest, AnErrorProvesNothing) {
  EXPECT_TRUE(ProofIn(Json::object({{"exited", Json::array()}}), kJob, 1).has_value());
  for (const Json& wrong : {Json(5), Json("text"), Json(nullptr), Json::object()})
    EXPECT_FALSE(ProofIn(Json::object({{"exited", wrong}}), kJob, 1).has_value()) << wrong;
  EXPECT_FALSE(ProofIn(Json::object(), kJob, 1).has_value());
  Json failed = Json::object({{"exited", Json::array()}});
  AddStatus(Internal("type must be string, but is number"), &failed);
  EXPECT_FALSE(ProofIn(failed, kJob, 1).has_value());
  AddStatus(OkStatus(), &failed);
  EXPECT_TRUE(ProofIn(failed, kJob, 1).has_value());
}

// The file server answered that with an error, which was taken for a proof.
TEST_F(OwnerFilesTest, ARecordOfAnotherFormKeepsNoRecordedEndFromTheProof) {
  std::ofstream(dir_ / kGuardianRecordName) << R"({"cgroup": 5})";
  fs::create_directories(dir_ / "exits");
  ASSERT_TRUE(WriteFileAtomically(dir_ / ExitRecordName(2, 0),
                                  EncodeExitRecord({.generation = 2, .rank = 0}))
                  .ok());
  const auto proof = files_.ProveTerminated("ada", dir_.path(), kJob, 2);
  ASSERT_TRUE(proof.has_value());
  EXPECT_EQ(proof->exited.size(), 1u);
}

TEST_F(OwnerFilesTest, AnImageOfPodmanIsRefusedWithWhatToDo) {
  const OwnersPart part = files_.PrepareForOwner(
      {},
      {.job = kJob,
       .spec_yaml = "name: x\nworkdir: /data/ada\ncommand: [true]\nresources: {nodes: 1}\n"
                    "container: {image: docker.io/pytorch/pytorch}\n",
       .output_dir = "/data/ada/out",
       .account = "ada"},
      dir_.path());
  EXPECT_FALSE(part.retryable);
  EXPECT_THAT(part.status.message(), HasSubstr("name a directory into which"));
}

TEST_F(OwnerFilesTest, AGuardianIsEndedByItsAccount) {
  const pid_t pid = ::fork();
  if (pid == 0) ::pause();
  const auto info = ReadProcess(pid);
  ASSERT_TRUE(info.ok());
  std::ofstream(dir_ / kGuardianRecordName)
      << "{\"pid\": " << pid << ", \"start_time\": " << info->start_time << "}";
  EXPECT_TRUE(files_.EndGuardian("ada", dir_.path(), kJob).ok());
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_FALSE(files_.EndGuardian("ada", dir_.path(), kJob).ok());
  EXPECT_FALSE(files_.EndGuardian("", dir_.path(), kJob).ok());
}

TEST_F(OwnerFilesTest, APathThatRanksDoNotSeeIsRefused) {
  const OwnersPart part = files_.PrepareForOwner(
      {},
      {.job = kJob,
       .spec_yaml = "name: x\nworkdir: /tmp/x\ncommand: [true]\nresources: {nodes: 1}\n",
       .output_dir = "/tmp/x/out",
       .account = "ada"},
      dir_.path());
  EXPECT_FALSE(part.retryable);
  EXPECT_THAT(part.status.message(), HasSubstr("workdir: /tmp/x: each job has /tmp"));
}

}  // namespace
}  // namespace muster::worker
