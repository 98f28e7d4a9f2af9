// Preflight, job records, manifests and log pieces in a directory of the test's own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/proc_reader.h"
#include "common/base/replace_file.h"
#include "common/base/testing/temp_dir.h"
#include "common/checkpoint_format/shard_frame.h"
#include "common/process/spawn.h"
#include "worker/agent/checkpoint_files.h"
#include "worker/agent/job_records.h"
#include "worker/agent/log_reader.h"
#include "worker/agent/preflight.h"
#include "worker/guardian/protocol.h"
#include "worker/process/record_file.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
namespace fs = std::filesystem;

const JobId kJob{"00c0ffee00"};

class PreflightTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(dir_ / "job");
    fs::create_directories(dir_ / "model");
  }
  Prepare CommandJob(const std::string& extra = "") const {
    return WithSpec("name: x\nworkdir: " + dir_.path() + "\nrendezvous: rank0\n" +
                    (extra.empty() ? "command: [sh, -c, 'exit 0']\n" : extra));
  }
  Prepare TrainJob(const std::string& model) const {
    return WithSpec("name: x\nworkdir: " + dir_.path() + "\ntrain:\n  model: {path: " + model +
                    "}\n  data: {train: t.jsonl}\n  schedule: {max_steps: 3}\n");
  }
  Prepare WithSpec(const std::string& yaml) const {
    return {.job = kJob,
            .job_name = "x",
            .generation = 2,
            .spec_yaml = yaml,
            .output_dir = dir_ / "out",
            .ranks = {{1, 0}}};
  }
  PreflightResult Run(const Prepare& prepare) const {
    const std::string dir = dir_ / "job";
    return RunPreflight(context_, prepare, dir,
                        [&] { return PrepareForOwner(context_, prepare, dir); });
  }
  void ExpectRefused(const Prepare& prepare, const std::string& why) const {
    const PreflightResult result = Run(prepare);
    EXPECT_FALSE(result.status.ok());
    EXPECT_FALSE(result.retryable) << result.status.message();
    EXPECT_THAT(result.status.message(), HasSubstr(why));
  }

  const TempDirForTest dir_;
  LaunchContext context_{.trainer_path = "/bin/true", .passed_through = {{"PATH", "/bin"}}};
};

TEST_F(PreflightTest, MakesAllThatAGenerationNeeds) {
  const PreflightResult result = Run(CommandJob());
  ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  EXPECT_EQ(result.spec.name, "x");
  EXPECT_TRUE(fs::is_directory(dir_ / "out/logs/2"));
  EXPECT_TRUE(fs::is_directory(dir_ / "job/errors"));
  EXPECT_EQ(ReadFile(dir_ / "job/spec.yaml").value(), CommandJob().spec_yaml);
  const auto claim = nlohmann::json::parse(ReadFile(dir_ / "out/job.json").value());
  EXPECT_EQ(claim["id"], kJob.value);
  EXPECT_EQ(claim["name"], "x");
}

// What a worker of the same pid on another node has there while it claims the directory too.
TEST_F(PreflightTest, AnotherNodesClaimUnderWayIsNotInTheWay) {
  const std::string theirs = dir_ / ("out/job.json." + std::to_string(::getpid()));
  fs::create_directories(theirs);
  ASSERT_TRUE(Run(CommandJob()).status.ok());
  EXPECT_TRUE(fs::exists(theirs));
}

TEST_F(PreflightTest, IsPassedAgainByTheNextGeneration) {
  ASSERT_TRUE(Run(CommandJob()).status.ok());
  EXPECT_TRUE(Run(CommandJob()).status.ok());
}

TEST_F(PreflightTest, RefusesForGoodWhatNoAttemptCanChange) {
  ExpectRefused(WithSpec("name: [\n"), "job file");
  ExpectRefused(WithSpec("name: x\nworkdir: /no/such\ncommand: [sh]\n"), "/no/such");
  ExpectRefused(CommandJob("command: [no-such-program]\n"), "no-such-program");
  ExpectRefused(CommandJob("command: [sh]\nenv: {RANK: '1'}\n"), "env.RANK");
  ExpectRefused(CommandJob("command: [sh]\nenv: {BIG: " + std::string(70000, 'x') + "}\n"),
                "put some of env or command into a file");
  ExpectRefused(TrainJob("absent"), "train.model.path");
  context_.trainer_path = "/no/muster-trainer";
  ExpectRefused(TrainJob("model"), "--trainer");
}

TEST_F(PreflightTest, ANameOfTheHubIsLeftToTheTrainer) {
  for (const char* name : {"org/name", "org/name@main"})
    EXPECT_TRUE(Run(TrainJob(name)).status.ok()) << Run(TrainJob(name)).status.ToString();
}

// Else the launch of a gang of thousands fails, when all of it is prepared: it travels in one
// packet.
TEST_F(PreflightTest, TheListsOfNodesAndRanksCountInTheSizeOfALaunch) {
  const auto job = [this](int nodes) {
    Prepare prepare = TrainJob("model");
    prepare.spec_yaml += "resources: {nodes: " + std::to_string(nodes) +
                         "}\nenv: {BIG: " + std::string(50'000, 'x') + "}\n";
    return prepare;
  };
  EXPECT_TRUE(Run(job(2)).status.ok()) << Run(job(2)).status.ToString();
  ExpectRefused(job(4096), "more name the job's 4096 nodes and the ranks of each");
}

// The coordinator knows the node by an earlier Hello: it may choose better at another attempt.
TEST_F(PreflightTest, DevicesThatAreMissingOrBrokenAreAReasonToTryElsewhere) {
  Prepare prepare = CommandJob("command: [sh]\nresources: {device: cuda, gpus_per_rank: 2}\n");
  prepare.ranks = {{0, 0}};
  const auto refused = [&](const std::vector<std::string>& devices) {
    prepare.devices = devices;
    const PreflightResult result = Run(prepare);
    EXPECT_TRUE(result.status.ok() || result.retryable);
    return result.status.message();
  };
  EXPECT_EQ(refused({}), "the job needs 2 GPUs on this node, and got 0 of its 0");
  context_.devices = {{.device = {.id = "GPU-a"}}, {.device = {.id = "GPU-b"}}};
  EXPECT_EQ(refused({"GPU-a"}), "the job needs 2 GPUs on this node, and got 1 of its 2");
  EXPECT_THAT(refused({"GPU-a", "GPU-c"}), HasSubstr("device GPU-c is not on this node"));
  EXPECT_EQ(refused({"GPU-a", "GPU-b"}), "");
  context_.devices[1].device.fault = "it is lost";
  EXPECT_EQ(refused({"GPU-a", "GPU-b"}), "device GPU-b cannot be used: it is lost");
}

TEST_F(PreflightTest, ReportsWhatTheTrainerLacksForACudaJob) {
  fs::create_directories(dir_ / "model");
  context_.devices = {{.device = {.id = "GPU-a"}}};
  Prepare prepare = WithSpec(TrainJob("model").spec_yaml + "resources: {device: cuda}\n");
  prepare.ranks = {{0, 0}};
  prepare.devices = {"GPU-a"};
  // /bin/true is no trainer: it prints nothing.
  ExpectRefused(prepare, "resources.device: cuda: `muster-trainer version --json` printed");
  context_.devices[0].device.fake = true;
  EXPECT_TRUE(Run(prepare).status.ok()) << "fake GPUs need no plug-in";
}

TEST_F(PreflightTest, RefusesAnOutputDirectoryOfAnotherJob) {
  fs::create_directories(dir_ / "out");
  ASSERT_TRUE(ClaimOutputDirectory(dir_ / "out", {"ffffffffff"}, "other").ok());
  ExpectRefused(CommandJob(), "belongs to job ffffffffff");
}

TEST_F(PreflightTest, RefusesAnOutputDirectoryThatCannotBeMade) {
  std::ofstream(dir_ / "out") << "a file";
  ExpectRefused(CommandJob(), "out");
}

TEST(JobRecords, ARestartedWorkerReadsWhatWasPrepared) {
  const TempDirForTest dir;
  const Prepare prepare{.job = kJob,
                        .job_name = "x",
                        .generation = 4,
                        .spec_yaml = "name: x\nworkdir: /tmp\ncommand: [sh]\n",
                        .output_dir = "/w/out",
                        .ranks = {{2, 0}, {3, 1}},
                        .hosts_master = true,
                        .master_bind_address = "127.0.0.1",
                        .devices = {"GPU-b", "GPU-a#2"}};
  ASSERT_TRUE(WriteJobRecord(dir.path(), prepare).ok());
  auto record = ReadJobRecord(dir.path(), dir.path());
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  EXPECT_EQ(record->prepare.generation, 4);
  EXPECT_EQ(record->prepare.ranks, prepare.ranks);
  EXPECT_EQ(record->prepare.devices, prepare.devices);
  EXPECT_EQ(record->prepare.output_dir, "/w/out");
  EXPECT_EQ(record->spec.command, std::vector<std::string>{"sh"});
  EXPECT_FALSE(record->launched);
  EXPECT_FALSE(record->guardian_alive);
  ASSERT_TRUE(ReplaceFile(ResumeFilePath(dir.path(), 4), "[]").ok());
  EXPECT_TRUE(ReadJobRecord(dir.path(), dir.path())->launched);
}

TEST(JobRecords, ADamagedRecordIsAnError) {
  const TempDirForTest dir;
  EXPECT_FALSE(ReadJobRecord(dir.path(), dir.path()).ok());
  std::ofstream(dir / "prepare.json") << "{";
  EXPECT_EQ(ReadJobRecord(dir.path(), dir.path()).status().code(), StatusCode::kDataLoss);
}

// The owner of a job may write anything into it. It ended the worker, and each that was started
// after it.
TEST(JobRecords, AGuardiansRecordMayHaveAnyForm) {
  const TempDirForTest dir;
  const Prepare prepare{.job = kJob,
                        .job_name = "x",
                        .generation = 4,
                        .spec_yaml = "name: x\nworkdir: /tmp\ncommand: [sh]\n",
                        .ranks = {{2, 0}}};
  ASSERT_TRUE(WriteJobRecord(dir.path(), prepare).ok());
  for (const char* key : {"pid", "start_time", "boot_id", "job", "generation", "cgroup"})
    for (const char* value : {"null", "true", "-5", "5", "18446744073709551615", "1e300", "0.5",
                              "\"x\"", "[]", "[1]", "{}", "{\"a\": 1}"}) {
      const std::string text = std::string("{\"") + key + "\": " + value + "}";
      ASSERT_TRUE(ReplaceFile(dir / kGuardianRecordName, text).ok());
      const auto record = ReadJobRecord(dir.path(), dir.path());
      ASSERT_TRUE(record.ok()) << text << record.status().ToString();
      const bool known = std::string(key) == "generation" && std::abs(std::atoi(value)) == 5;
      EXPECT_EQ(record->guardian_generation, known ? std::atoi(value) : 0) << text;
      EXPECT_FALSE(GuardianOf(dir.path()).has_value()) << text;
      EXPECT_FALSE(KillGuardian(dir.path()).ok()) << text;
      if (std::string(key) == "cgroup") {
        EXPECT_THAT(ProveTerminated(dir.path(), kJob, 4).unkillable, IsEmpty()) << text;
      }
    }
  for (const char* text : {"", "7", "[]", "{", "null", "{\"pid\": -1, \"start_time\": 1}",
                           "{\"pid\": 4294967297, \"start_time\": 1}"}) {
    ASSERT_TRUE(ReplaceFile(dir / kGuardianRecordName, text).ok());
    EXPECT_TRUE(ReadJobRecord(dir.path(), dir.path()).ok()) << text;
    EXPECT_FALSE(GuardianOf(dir.path()).has_value()) << text;
    EXPECT_THAT(ProveTerminated(dir.path(), kJob, 4).unkillable, IsEmpty()) << text;
  }
}

TEST(EndedOf, TakesAPidThatAnotherProcessHasMeanwhileForAnEndedOne) {
  const auto child = SpawnChild({.argv = {"/bin/sleep", "60"}});
  ASSERT_TRUE(child.ok());
  const auto info = ReadProcess(*child);
  ASSERT_TRUE(info.ok());
  ProcessInfo earlier = *info;
  earlier.start_time -= 1;
  EXPECT_THAT(EndedOf({*info}), IsEmpty());
  EXPECT_THAT(EndedOf({earlier}), ElementsAre(*child));
  ::kill(*child, SIGKILL);
  siginfo_t ended;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(*child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_THAT(EndedOf({*info}), ElementsAre(*child)) << "a zombie runs no more";
  int wait_status = 0;
  ::waitpid(*child, &wait_status, 0);
  EXPECT_THAT(EndedOf({*info}), ElementsAre(*child));
}

TEST(ProveTerminated, EndsWhatADeadGuardianLeftAndReadsItsRecords) {
  const TempDirForTest dir;
  fs::create_directories(dir / "exits");
  const GuardianRankExited exited{.generation = 2, .rank = 1, .end = {.exit = {.exit_code = 9}}};
  ASSERT_TRUE(ReplaceFile(dir / ExitRecordName(2, 1), EncodeExitRecord(exited)).ok());
  const GuardianRankExited older{.generation = 1, .rank = 0, .end = {.exit = {.exit_code = 8}}};
  ASSERT_TRUE(ReplaceFile(dir / ExitRecordName(1, 0), EncodeExitRecord(older)).ok());
  const auto left =
      SpawnChild({.argv = {"/bin/sleep", "60"},
                  .environment = {"TORCHELASTIC_ERROR_FILE=" + ErrorFilePath(dir.path(), 2, 0)}});
  // Another node's process of the same job is left alone.
  const auto foreign = SpawnChild(
      {.argv = {"/bin/sleep", "60"}, .environment = {"TORCHELASTIC_ERROR_FILE=/other/errors/x"}});
  ASSERT_TRUE(left.ok() && foreign.ok());
  const TerminationProof proof = ProveTerminated(dir.path(), kJob, 2);
  EXPECT_THAT(proof.unkillable, IsEmpty());
  ASSERT_EQ(proof.exited.size(), 1u);
  EXPECT_EQ(proof.exited[0].rank, 1);
  EXPECT_EQ(proof.exited[0].end.exit.exit_code, 9);
  int wait_status = 0;
  EXPECT_EQ(::waitpid(*left, &wait_status, 0), *left);
  EXPECT_EQ(ProcessExitFromWaitStatus(wait_status).signal, SIGKILL);
  EXPECT_EQ(::waitpid(*foreign, &wait_status, WNOHANG), 0);
  ::kill(*foreign, SIGKILL);
  ::waitpid(*foreign, nullptr, 0);
}

TEST(ProveTerminated, RanksThatAStoppedGuardianHadNotLaunchedDidNotFail) {
  const TempDirForTest dir;
  fs::create_directories(dir / "exits");
  const Prepare prepare{
      .job = kJob, .job_name = "x", .generation = 2, .spec_yaml = "s", .ranks = {{2, 0}, {3, 1}}};
  ASSERT_TRUE(WriteJobRecord(dir.path(), prepare).ok());
  const GuardianRankExited exited{.generation = 2, .rank = 2, .end = {.exit = {.exit_code = 9}}};
  ASSERT_TRUE(ReplaceFile(dir / ExitRecordName(2, 2), EncodeExitRecord(exited)).ok());
  EXPECT_EQ(ProveTerminated(dir.path(), kJob, 2).exited.size(), 1u);
  ASSERT_TRUE(ReplaceFile(dir / StoppedRecordName(2), "").ok());
  const TerminationProof proof = ProveTerminated(dir.path(), kJob, 2);
  ASSERT_EQ(proof.exited.size(), 2u);
  EXPECT_FALSE(proof.exited[0].end.node_stopped);
  EXPECT_EQ(proof.exited[1].rank, 3);
  EXPECT_TRUE(proof.exited[1].end.node_stopped);
  EXPECT_THAT(ProveTerminated(dir.path(), kJob, 1).exited, IsEmpty());
}

class ManifestTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"step-00000010-g1", "step-00000005-g1", "precious"}) {
      fs::create_directories(dir_ / ("checkpoints/" + std::string(name)));
      std::ofstream(dir_ / ("checkpoints/" + std::string(name) + "/rank-00000.shard")) << "x";
    }
    committed_ = {.job = kJob,
                  .generation = 1,
                  .output_dir = dir_.path(),
                  .checkpoint = {.step = 10,
                                 .generation = 1,
                                 .directory = "step-00000010-g1",
                                 .world_size = 2,
                                 .shards = {WriteShard("rank-00000.shard")},
                                 .committed_unix_ms = 77}};
  }
  // A shard without arrays, in the checkpoint that is committed.
  ShardInfo WriteShard(const std::string& file) const {
    const ShardFrame frame = ShardFrame::Make(2, 0);
    const std::string content = EncodeShardHead(frame, "{}");
    std::ofstream(dir_ / ("checkpoints/step-00000010-g1/" + file)) << content;
    return {0, file, frame.file_bytes(), ShardChecksum(content, "")};
  }
  const TempDirForTest dir_;
  CheckpointCommitted committed_;
};

TEST_F(ManifestTest, IsWrittenBesideTheShards) {
  ASSERT_TRUE(WriteManifest(committed_).status.ok());
  const auto json =
      nlohmann::json::parse(ReadFile(dir_ / "checkpoints/step-00000010-g1/manifest.json").value());
  EXPECT_EQ(json["format_version"], 1);
  EXPECT_EQ(json["job_id"], kJob.value);
  EXPECT_EQ(json["step"], 10);
  EXPECT_EQ(json["generation"], 1);
  EXPECT_EQ(json["world_size"], 2);
  EXPECT_EQ(json["committed_unix_ms"], 77);
  EXPECT_EQ(json["directory"], "step-00000010-g1");
  EXPECT_EQ(json["shards"][0]["file"], "rank-00000.shard");
  EXPECT_EQ(json["shards"][0]["bytes"], 4096);
  EXPECT_EQ(json["shards"][0]["checksum"], committed_.checkpoint.shards[0].checksum);
  EXPECT_FALSE(json.contains("eval_loss"));
  committed_.checkpoint.eval_loss = 2.5;
  EXPECT_EQ(nlohmann::json::parse(ManifestJson(kJob, committed_.checkpoint))["eval_loss"], 2.5);
}

// The nodes read the shards afterwards, each its own.
TEST_F(ManifestTest, NoShardIsRead) {
  fs::remove(dir_ / "checkpoints/step-00000010-g1/rank-00000.shard");
  EXPECT_TRUE(WriteManifest(committed_).status.ok());
}

TEST_F(ManifestTest, OlderOnesStayWhereTheCommitRecordCannotBeWritten) {
  committed_.prune = {"step-00000005-g1"};
  const std::string manifest = dir_ / "checkpoints/step-00000010-g1/manifest.json";
  fs::create_directories(manifest);
  EXPECT_FALSE(WriteManifest(committed_).status.ok());
  EXPECT_TRUE(fs::exists(dir_ / "checkpoints/step-00000005-g1/rank-00000.shard"));
  fs::remove(manifest);
  const CommitWritten written = WriteManifest(committed_);
  EXPECT_TRUE(written.status.ok());
  EXPECT_THAT(written.pruned, ElementsAre("step-00000005-g1"));
  EXPECT_FALSE(fs::exists(dir_ / "checkpoints/step-00000005-g1"));
}

// On a full disk it could not be, and nothing would be removed.
TEST_F(ManifestTest, ACommitRecordThatLiesThereIsNotWrittenAgain) {
  ASSERT_TRUE(WriteManifest(committed_).status.ok());
  const fs::path manifest = dir_ / "checkpoints/step-00000010-g1/manifest.json";
  const auto hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(manifest, hour_ago);
  committed_.prune = {"step-00000005-g1"};
  EXPECT_THAT(WriteManifest(committed_).pruned, ElementsAre("step-00000005-g1"));
  EXPECT_EQ(fs::last_write_time(manifest), hour_ago);
}

// It kept its reader as long as anybody wrote to it, byte by byte.
TEST_F(ManifestTest, AManifestThatIsAFifoIsReplacedAtOnce) {
  const std::string manifest = dir_ / "checkpoints/step-00000010-g1/manifest.json";
  ASSERT_EQ(::mkfifo(manifest.c_str(), 0600), 0);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(WriteManifest(committed_).status.ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_TRUE(fs::is_regular_file(manifest));
}

TEST_F(ManifestTest, PrunesOnlyCheckpoints) {
  committed_.prune = {"step-00000005-g1",  "precious",         "../checkpoints/precious",
                      "step-/../precious", "step-00000010-g1", ""};
  const CommitWritten written = WriteManifest(committed_);
  ASSERT_TRUE(written.status.ok());
  EXPECT_THAT(written.pruned, ElementsAre("step-00000005-g1"));
  EXPECT_FALSE(fs::exists(dir_ / "checkpoints/step-00000005-g1"));
  EXPECT_TRUE(fs::exists(dir_ / "checkpoints/precious/rank-00000.shard"));
  EXPECT_TRUE(fs::exists(dir_ / "checkpoints/step-00000010-g1/manifest.json"));
  EXPECT_NE(written.prune_error, "");
}

TEST_F(ManifestTest, WhatEarlierGenerationsLeftHalfWrittenIsRemoved) {
  for (const char* name : {"step-00000020-g1", "step-00000030-g2", "step-00000030-g3", "step-x"})
    fs::create_directories(dir_ / ("checkpoints/" + std::string(name)));
  ASSERT_TRUE(WriteManifest(committed_).status.ok());
  const Launch launch{.generation = 3, .resume = {{.step = 5, .directory = "step-00000005-g1"}}};
  EXPECT_THAT(RemoveAbandonedCheckpoints(dir_.path(), launch),
              UnorderedElementsAre("step-00000020-g1", "step-00000030-g2"));
  for (const char* kept : {"step-00000005-g1", "step-00000010-g1", "step-00000030-g3", "precious"})
    EXPECT_TRUE(fs::exists(dir_ / ("checkpoints/" + std::string(kept)))) << kept;
  EXPECT_FALSE(fs::exists(dir_ / "checkpoints/step-00000020-g1"));
}

TEST_F(ManifestTest, PruningADirectoryThatIsGoneIsNoError) {
  committed_.prune = {"step-00000001-g1"};
  const CommitWritten written = WriteManifest(committed_);
  EXPECT_EQ(written.prune_error, "");
  EXPECT_THAT(written.pruned, ElementsAre("step-00000001-g1"));
}

TEST_F(ManifestTest, ACheckpointThatIsNotThereIsAnError) {
  committed_.checkpoint.directory = "step-00000099-g1";
  EXPECT_FALSE(WriteManifest(committed_).status.ok());
  committed_.checkpoint.directory = "../escape";
  EXPECT_EQ(WriteManifest(committed_).status.code(), StatusCode::kInvalidArgument);
}

TEST(ResumeJson, IsAnArrayOfManifestsNewestFirst) {
  const auto json = nlohmann::json::parse(
      ResumeJson(kJob, {{.step = 20, .directory = "b"}, {.step = 10, .directory = "a"}}));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["step"], 20);
  EXPECT_EQ(json[1]["directory"], "a");
  EXPECT_EQ(nlohmann::json::parse(ResumeJson(kJob, {})), nlohmann::json::array());
}

TEST(LogReader, ReadsPiecesAndReturnsWhereTheNextBegins) {
  const TempDirForTest dir;
  fs::create_directories(dir / "logs/3");
  std::ofstream(dir / "logs/3/rank-1.log") << "0123456789";
  ReadLog request{.request_id = 5,
                  .generation = 3,
                  .rank = 1,
                  .offset = 2,
                  .limit_bytes = 4,
                  .output_dir = dir.path()};
  const LogChunk middle = ReadLogChunk(request);
  EXPECT_EQ(middle.request_id, 5u);
  EXPECT_EQ(middle.data, "2345");
  EXPECT_EQ(middle.next_offset, 6);
  EXPECT_FALSE(middle.at_end);
  request.offset = -3;
  EXPECT_EQ(ReadLogChunk(request).data, "789");
  EXPECT_TRUE(ReadLogChunk(request).at_end);
  request.offset = -100;
  EXPECT_EQ(ReadLogChunk(request).data, "0123");
  request.offset = 50;
  EXPECT_EQ(ReadLogChunk(request).data, "");
  EXPECT_EQ(ReadLogChunk(request).next_offset, 10);
}

// A rank that put one in the place of its log blocked the thread that reads logs for good.
TEST(LogReader, DoesNotWaitForTheWriterOfAFifo) {
  const TempDirForTest dir;
  fs::create_directories(dir / "logs/3");
  ASSERT_EQ(::mkfifo((dir / "logs/3/rank-1.log").c_str(), 0600), 0);
  const LogChunk chunk = ReadLogChunk({.generation = 3, .rank = 1, .output_dir = dir.path()});
  EXPECT_THAT(chunk.error, HasSubstr("is no regular file"));
}

TEST(LogReader, ReadsTheMetricsOfTheJob) {
  const TempDirForTest dir;
  std::ofstream(dir / "metrics.jsonl") << "{}\n";
  const LogChunk chunk = ReadLogChunk({.generation = 3, .output_dir = dir.path(), .metrics = true});
  EXPECT_EQ(chunk.data, "{}\n");
}

TEST(LogReader, NamesAMissingLog) {
  const LogChunk chunk = ReadLogChunk({.generation = 3, .rank = 1, .output_dir = "/no/such"});
  EXPECT_THAT(chunk.error, HasSubstr("/no/such/logs/3/rank-1.log"));
}

}  // namespace
}  // namespace muster::worker
