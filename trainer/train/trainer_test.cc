// Whole training runs of two ranks as threads, with a guardian's end of the control socket in hand.
#include "trainer/train/trainer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "common/base/unique_fd.h"
#include "trainer/model/families/read_config.h"
#include "trainer/model/testing/late_copies_testing.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/train/testing/trainer_testing.h"

namespace muster {
namespace {

struct OwnCpu {
  const std::unique_ptr<DeviceOps> cpu = MakeCpuOps();
};

// A device apart from the host; reports at its end how many copies it made.
class DeviceApart final : private OwnCpu, public LateCopies {
 public:
  explicit DeviceApart(std::atomic<int>& copies) : LateCopies(*cpu), copies_(copies) {}
  ~DeviceApart() override { copies_ += begun(); }

 private:
  std::atomic<int>& copies_;
};

// One whose copies fail, from the one of that number on, at every wait.
class DeviceThatFails final : private OwnCpu, public LateCopies {
 public:
  explicit DeviceThatFails(int number) : LateCopies(*cpu), number_(number) {}

  std::unique_ptr<DeviceCopy> Copy(void* to, const void* from, std::size_t bytes) override {
    return std::make_unique<Failing>(*this, LateCopies::Copy(to, from, bytes));
  }

 private:
  class Failing final : public DeviceCopy {
   public:
    Failing(const DeviceThatFails& device, std::unique_ptr<DeviceCopy> copy)
        : device_(device), copy_(std::move(copy)) {}
    void WaitOnDevice() override {
      Check();
      copy_->WaitOnDevice();
    }
    void WaitOnHost() override {
      Check();
      copy_->WaitOnHost();
    }

   private:
    void Check() const {
      if (device_.begun() >= device_.number_) throw std::runtime_error("the device has failed");
    }
    const DeviceThatFails& device_;
    const std::unique_ptr<DeviceCopy> copy_;
  };
  const int number_;
};

std::vector<std::string> Types(const RankResult& result) {
  std::vector<std::string> types;
  for (const Json& message : result.messages) {
    if (message["type"] != "note" && message["type"] != "shard_written") {
      types.push_back(message["type"]);
    }
  }
  return types;
}

// The entry of a token cache that has one.
std::string TokensIn(const std::string& cache) {
  for (const auto& file : std::filesystem::directory_iterator(cache)) {
    if (file.path().extension() == ".tokens") return file.path().string();
  }
  ADD_FAILURE() << "no entry in " << cache;
  return "";
}

TEST_F(TrainerTest, ARunReportsEachStageAndLeavesAModel) {
  const std::vector<RankResult> results = Run(Spec("out"));
  for (const RankResult& result : results) {
    ASSERT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_EQ(Types(result),
              (std::vector<std::string>{"formed", "resumed", "first_step", "finished"}));
    EXPECT_EQ(result.messages.back()["model_dir"], dir_ + "/out/model");
  }
  const std::vector<Json> metrics = Metrics("out");
  ASSERT_EQ(metrics.size(), 6u);
  EXPECT_EQ(metrics[5]["step"], 6);
  EXPECT_EQ(metrics[5]["samples"], 6 * 8);
  EXPECT_LT(metrics[5]["loss"], metrics[0]["loss"]);
  const Result<SafetensorsModel> model = SafetensorsModel::Open(dir_ + "/out/model");
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_TRUE(ReadModelConfig(dir_ + "/out/model").ok());
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/out/model/tokenizer.json"));
}

TEST_F(TrainerTest, AResumedRunEndsInTheSameBits) {
  const std::vector<RankResult> whole = Run(Spec("whole"));
  const auto checkpoints = dir_ + "/whole/checkpoints";
  Commit(whole, 3);
  std::filesystem::create_directories(dir_ + "/again");
  std::filesystem::copy(checkpoints, dir_ + "/again/checkpoints",
                        std::filesystem::copy_options::recursive);
  const std::vector<RankResult> again = Run(Spec("again"));
  for (const RankResult& result : again) {
    ASSERT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_EQ(result.messages[1]["step"], 3);
  }
  const std::vector<Json> undisturbed = Metrics("whole");
  const std::vector<Json> resumed = Metrics("again");
  ASSERT_EQ(resumed.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "sample_chain"}) {
      EXPECT_EQ(resumed[i][key], undisturbed[i + 3][key]) << key;
    }
  }
  EXPECT_EQ(*ReadFile(dir_ + "/again/model/model.safetensors"),
            *ReadFile(dir_ + "/whole/model/model.safetensors"));
}

TEST_F(TrainerTest, RanksOfAHostThatUseSocketsSaySoOnce) {
  const auto warnings = [](const RankResult& result) {
    std::vector<std::string> found;
    for (const Json& message : result.messages) {
      if (message["type"] == "note" && message["severity"] == "warning")
        found.push_back(message["message"]);
    }
    return found;
  };
  for (const RankResult& result : Run(Spec("shared"))) EXPECT_EQ(warnings(result).size(), 0u);
  transport_ = InProcessTransport::kRing;
  const std::vector<RankResult> results = Run(Spec("ring"));
  EXPECT_EQ(warnings(results[0]),
            std::vector<std::string>{"2 ranks of one host use sockets, which are slower than its "
                                     "memory: threads in a ring"});
  EXPECT_EQ(warnings(results[1]).size(), 0u) << "the first rank speaks for all";
  RunAlone(Spec("alone"));
  EXPECT_NE(Said().find("the ranks reach each other by: threads in a ring"), std::string::npos);
}

TEST_F(TrainerTest, AStateOnADeviceIsLoadedAndSavedByTheDevicesCopies) {
  for (const RankResult& result : RunAlone(Spec("host"))) ASSERT_TRUE(result.status.ok());
  std::atomic<int> copies = 0;
  make_ops_ = [&copies] { return std::make_unique<DeviceApart>(copies); };
  const auto run = [&](const JobSpec& spec) {
    copies = 0;
    for (const RankResult& result : RunAlone(spec)) {
      ASSERT_TRUE(result.status.ok()) << result.status.message();
    }
  };
  constexpr int kArrays = 4 * 3;  // of a rank: units, times weight and moments
  const auto loss = [this](const char* output) { return Metrics(output).back()["loss"]; };

  run(Spec("device"));  // the model's weights come in, two checkpoints go out
  EXPECT_GE(copies, ranks_ * (4 + 2 * kArrays));
  EXPECT_EQ(loss("device"), loss("host"));

  std::filesystem::remove_all(dir_ + "/device/checkpoints/step-00000006-g1");
  run(Spec("device"));  // the first checkpoint comes in, the second goes out again
  EXPECT_GE(copies, ranks_ * 2 * kArrays);
  EXPECT_EQ(loss("device"), loss("host"));

  JobSpec from = Spec("from");
  from.train->init_from = {.path = "host/checkpoints", .optimizer = true};
  from.train->schedule.max_steps = 1;
  run(from);
  EXPECT_GE(copies, ranks_ * 2 * kArrays);
}

// It threw again while the engine was taken apart, and the process ended without a report.
TEST_F(TrainerTest, AFailureOfADeviceIsReported) {
  ranks_ = 1;
  JobSpec spec = Spec("out");
  spec.train->fsdp.cpu_offload = true;
  std::atomic<int> copies = 0;
  make_ops_ = [&copies] { return std::make_unique<DeviceApart>(copies); };
  ASSERT_TRUE(RunAlone(spec)[0].status.ok());
  spec.train->output_dir = "failed";
  for (const int number : {copies / 3, copies / 2, copies * 2 / 3}) {
    make_ops_ = [number] { return std::make_unique<DeviceThatFails>(number); };
    const TrainStatus failure = RunAlone(spec)[0].status;
    ASSERT_FALSE(failure.ok());
    EXPECT_EQ(failure.kind_name(), "internal");
    EXPECT_EQ(failure.message(), "the device has failed");
  }
}

TEST_F(TrainerTest, AStopThatOneRankHeardWhileLoadingStopsAllBeforeTheFirstStep) {
  const std::vector<RankResult> results = Run(Spec("out"), 1);
  for (const RankResult& result : results) {
    ASSERT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_EQ(result.step, 0);
    EXPECT_EQ(Types(result), (std::vector<std::string>{"formed", "resumed"}));
  }
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/out/model"));
}

TEST_F(TrainerTest, ABrokenRowIsBadInputWithItsLine) {
  std::ofstream(dir_ + "/rows.jsonl", std::ios::app) << "{\"prompt\": \n";
  const std::vector<RankResult> results = Run(Spec("out"));
  for (const RankResult& result : results) {
    ASSERT_FALSE(result.status.ok());
    EXPECT_EQ(result.status.kind_name(), "data");
    EXPECT_EQ(result.status.exit_code(), kExitBadInput);
    EXPECT_NE(result.status.message().find("rows.jsonl:13"), std::string::npos);
  }
}

// Packs are made anew at every start, and rows come out of the token cache at the second one.
TEST_F(TrainerTest, PackedRowsGoOnInTheMiddleOfAnEpoch) {
  {
    std::ofstream rows(dir_ + "/rows.jsonl", std::ios::app);
    for (int i = 0; i < 100; ++i) rows << Json{{"text", std::string(i % 40 + 3, 'a')}} << "\n";
  }
  JobSpec spec = Spec("whole");
  spec.train->data.packing = true;
  const std::vector<RankResult> whole = Run(spec);
  ASSERT_TRUE(whole[0].status.ok()) << whole[0].status.message();
  std::string said;
  for (const Json& message : whole[0].messages) said += message.dump() + "\n";
  EXPECT_NE(said.find("112 documents were packed into"), std::string::npos) << said;
  Commit(whole, 3);
  std::filesystem::create_directories(dir_ + "/again");
  std::filesystem::copy(dir_ + "/whole/checkpoints", dir_ + "/again/checkpoints",
                        std::filesystem::copy_options::recursive);
  spec.train->output_dir = "again";
  for (const RankResult& result : Run(spec)) {
    ASSERT_TRUE(result.status.ok()) << result.status.message();
  }
  const std::vector<Json> undisturbed = Metrics("whole");
  const std::vector<Json> resumed = Metrics("again");
  ASSERT_EQ(resumed.size(), 3u);
  EXPECT_LT(undisturbed[2]["epoch"], 2) << "in the middle of an epoch";
  for (int i = 0; i < 3; ++i) {
    for (const char* key : {"loss", "grad_norm", "tokens", "sample_chain", "epoch"}) {
      EXPECT_EQ(resumed[i][key], undisturbed[i + 3][key]) << key;
    }
  }
}

TEST_F(TrainerTest, RowsOfTokenIdsNeedNoTokenizer) {
  std::filesystem::remove(dir_ + "/model/tokenizer.json");
  std::ofstream rows(dir_ + "/rows.bin", std::ios::binary);
  for (int i = 0; i < 16 * 12 + 5; ++i) rows << static_cast<char>(i) << '\0';
  rows.close();
  JobSpec spec = Spec("out");
  spec.train->data.train = {"rows.bin"};
  spec.train->data.max_seq_len = 16;
  for (const RankResult& result : RunAlone(spec)) {
    ASSERT_TRUE(result.status.ok()) << result.status.message();
  }
  EXPECT_LT(Metrics("out")[5]["loss"], Metrics("out")[0]["loss"]);
  EXPECT_EQ(Metrics("out")[0]["tokens"], 8 * 15);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/out/model/tokenizer.json"));
  const std::string said = Said();
  EXPECT_NE(said.find("rows.bin: 5 tokens after the last whole row of 16 were dropped"),
            std::string::npos)
      << said;
}

TEST_F(TrainerTest, RanksWithDifferentRowsAreToldSo) {
  std::filesystem::copy(dir_ + "/rows.jsonl", dir_ + "/others.jsonl");
  std::ofstream(dir_ + "/others.jsonl", std::ios::app)
      << R"({"prompt": "one", "completion": "more"})"
      << "\n";
  const JobSpec mine = Spec("out");
  JobSpec other = mine;
  other.train->data.train = {"others.jsonl"};
  const std::vector<RankResult> results = RunEach({mine, other});
  for (const RankResult& result : results) {
    ASSERT_FALSE(result.status.ok());
    EXPECT_EQ(result.status.kind_name(), "data");
    EXPECT_EQ(result.status.exit_code(), kExitBadInput);
  }
  EXPECT_NE(results[1].status.message().find("rank 1 has read 13 rows"), std::string::npos)
      << results[1].status.message();
}

// Rank 1 waits for an entry of the token cache that another process has in hand, longer than a
// collective may take; rank 0 has its rows.
TEST_F(TrainerTest, ARankWhoseRowsTakeLongerThanACollectiveMayIsWaitedFor) {
  JobSpec ready = Spec("out");
  ready.train->data.cache = "none";
  JobSpec late = Spec("out");
  late.train->data.cache = "cache";
  ASSERT_TRUE(LoadTrainInputs(late).ok());
  const std::string entry = TokensIn(dir_ + "/cache");
  ASSERT_TRUE(std::filesystem::remove(entry));
  UniqueFd turn(::open((entry + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_EQ(::flock(turn.get(), LOCK_EX), 0);
  operation_limit_ = std::chrono::seconds(2);
  std::vector<RankResult> results;
  std::thread run([&] { results = RunEach({ready, late}); });
  const Deadline held = Deadline::After(operation_limit_ * 3 / 2);
  while (!held.Expired()) std::this_thread::yield();
  turn.reset();
  run.join();
  for (const RankResult& result : results) {
    EXPECT_TRUE(result.status.ok()) << result.status.message();
  }
}

// It was reported as bad input, which ends a job for good.
TEST_F(TrainerTest, RowsWhoseCacheIsDamagedAreReadAnewByTheNextAttempt) {
  const JobSpec spec = Spec("out");
  ProcessInputs inputs(spec);
  ASSERT_TRUE(inputs.Load().ok());
  const Dataset* const first = inputs->dataset.get();
  ASSERT_TRUE(inputs.Load().ok());
  EXPECT_EQ(inputs->dataset.get(), first) << "nothing has happened";
  std::filesystem::resize_file(TokensIn(dir_ + "/.muster-cache"), 120);
  const auto read_row = [&inputs] {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(inputs->dataset->Length(11)));
    std::vector<std::int64_t> labels(ids.size());
    return inputs->dataset->Read(11, ids, labels);
  };
  const TrainStatus failure = FromInput(FailureKind::kData, read_row());
  EXPECT_EQ(failure.kind_name(), "io");
  EXPECT_EQ(failure.exit_code(), kExitFailure);
  ASSERT_TRUE(inputs.Load().ok());
  EXPECT_TRUE(read_row().ok());
}

TEST_F(TrainerTest, RanksWithDifferentSettingsAreToldSo) {
  JobSpec other = Spec("out");
  other.train->optimizer.lr = 1e-3;
  for (const RankResult& result : RunEach({Spec("out"), other})) {
    ASSERT_FALSE(result.status.ok());
    EXPECT_EQ(result.status.kind_name(), "config");
  }
}

TEST_F(TrainerTest, WithoutAGuardianAResumeSaysWhatItRefusedAndCountsItsGeneration) {
  JobSpec spec = Spec("out");
  for (const RankResult& result : RunAlone(spec)) ASSERT_TRUE(result.status.ok());
  const std::string newest = dir_ + "/out/checkpoints/step-00000006-g1/rank-00001.shard";
  std::fstream(newest, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end)
      << '\x7f';
  spec.train->seed += 1;
  for (const RankResult& result : RunAlone(spec)) {
    ASSERT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_EQ(result.step, 6);
  }
  const std::string said = Said();
  EXPECT_NE(said.find("checkpoint step-00000006-g1 is not used: rank 1: "), std::string::npos)
      << said;
  EXPECT_NE(said.find("warning: step-00000003-g1 was made with another train.seed"),
            std::string::npos)
      << said;
  EXPECT_EQ(Metrics("out").back()["generation"], 2);
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/out/checkpoints/step-00000006-g2"));
}

// One node's disk was not mounted, and weeks of training began anew.
TEST_F(TrainerTest, WhereNoCheckpointCanBeUsedTrainingDoesNotBeginAnew) {
  const JobSpec spec = Spec("out");
  for (const RankResult& result : RunAlone(spec)) ASSERT_TRUE(result.status.ok());
  const std::string checkpoints = dir_ + "/out/checkpoints";
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints)) {
    std::filesystem::remove(entry.path() / "rank-00001.shard");
  }
  for (const RankResult& result : RunAlone(spec)) {
    ASSERT_FALSE(result.status.ok());
    EXPECT_EQ(result.status.kind_name(), "io");
    EXPECT_NE(result.status.exit_code(), kExitBadInput) << "it may be there the next time";
    EXPECT_NE(result.status.message().find("none of the job's checkpoints can be used"),
              std::string::npos)
        << result.status.message();
  }
}

TEST_F(TrainerTest, AModelThatCannotBeWrittenIsTheFaultOfRankZero) {
  // A file to copy into the new model, spoiled.
  std::filesystem::create_directories(dir_ + "/model/vocab.json");
  const std::vector<RankResult> results = Run(Spec("out"));
  ASSERT_FALSE(results[0].status.ok() || results[1].status.ok());
  EXPECT_EQ(results[0].status.kind_name(), "io");
  for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/out")) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("model")) << entry.path();
  }
  EXPECT_EQ(results[1].status.exit_code(), kExitPeerLost);
}

TEST_F(TrainerTest, AMissingModelIsBadInput) {
  JobSpec spec = Spec("out");
  spec.train->model.path = "nowhere";
  const std::vector<RankResult> results = Run(spec);
  EXPECT_EQ(results[0].status.kind_name(), "model");
  EXPECT_EQ(results[0].status.exit_code(), kExitBadInput);
  EXPECT_EQ(Types(results[0]), std::vector<std::string>{"formed"});
}

TEST_F(TrainerTest, AProgressPageTellsWhatIsLoaded) {
  ranks_ = 1;
  JobSpec spec = Spec("out");
  spec.train->lora.emplace();
  const Watched run = RunUntil(
      spec, [](const ProgressValues& seen) { return seen.step > 0; }, [] {});
  EXPECT_TRUE(run.result.status.ok());
  for (const TrainPhase phase :
       {TrainPhase::kReadingRows, TrainPhase::kLoadingFrozen, TrainPhase::kLoading}) {
    EXPECT_GT(run.seen.phase_seconds[static_cast<std::size_t>(phase)], 0) << TrainPhaseName(phase);
  }
}

// In an ordinary phase the wait would be taken for a hang after a few steps' time, and every rank
// killed for it, those that write too.
TEST_F(TrainerTest, TheWaitForTheLastCheckpointIsNoOrdinaryPhase) {
  ranks_ = 1;
  JobSpec spec = Spec("out");
  spec.train->schedule.max_steps = 3;
  spec.train->checkpoint.every = 2;
  resume_file_ = dir_ + "/resume.json";
  ASSERT_TRUE(WriteFileAtomically(resume_file_, "[]").ok());
  // Who opens a pipe for writing waits for a reader, as for a file server that does not answer.
  const std::string shard = dir_ + "/out/checkpoints/step-00000002-g1/rank-00000.shard.tmp";
  ASSERT_TRUE(MakeDirectories(std::filesystem::path(shard).parent_path()).ok());
  ASSERT_EQ(::mkfifo(shard.c_str(), 0600), 0);
  UniqueFd reader;
  const Watched run = RunUntil(
      spec,
      [](const ProgressValues& seen) {
        return seen.step == 3 && seen.phase == TrainPhase::kCheckpoint;
      },
      [&] { reader.reset(::open(shard.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)); });
  EXPECT_EQ(TrainPhaseName(run.seen.phase), "checkpoint");
  EXPECT_TRUE(run.result.status.ok());
  EXPECT_EQ(run.result.step, 3);
}

// A full pipe takes a line as a file server that does not answer does.
TEST_F(TrainerTest, AMetricsFileThatDoesNotAnswerHoldsUpNoStep) {
  ranks_ = 1;
  const std::string path = dir_ + "/out/metrics.jsonl";
  ASSERT_TRUE(MakeDirectories(dir_ + "/out").ok());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const UniqueFd pipe(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  std::string block(4096, '-');
  while (::write(pipe.get(), block.data(), block.size()) > 0) {
  }
  const auto empty = [&] {
    while (::read(pipe.get(), block.data(), block.size()) > 0) {
    }
  };
  const auto done = [](const ProgressValues& seen) { return seen.phase == TrainPhase::kDone; };
  const Watched run = RunUntil(Spec("out"), done, empty);
  EXPECT_EQ(run.seen.step, 6);
  EXPECT_EQ(TrainPhaseName(run.seen.phase), "done");
  EXPECT_TRUE(run.result.status.ok());
  bool told = false;
  for (const Json& message : run.result.messages) {
    told |= message["type"] == "note" &&
            message["message"].get<std::string>().starts_with("5 lines of metrics.jsonl are lost");
  }
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace muster
