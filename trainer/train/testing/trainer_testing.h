// TrainerTest: whole training runs whose ranks are threads, with a guardian's end of the control
// socket in hand. Header of tests only.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/testing/temp_dir.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/comm/group/testing/in_process_communicator.h"
#include "trainer/formats/init_model.h"
#include "trainer/formats/safetensors.h"
#include "trainer/inputs/init_weights.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/state/checkpoint/manifest.h"
#include "trainer/train/rank_process.h"

namespace muster {

using Json = nlohmann::json;

inline ModelConfig SmallConfig() {
  ModelConfig config;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.vocab_size = 288;
  return config;
}

struct RankResult {
  TrainStatus status;
  Step step = 0;
  std::vector<Json> messages;  // that the guardian received
};

class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeDirectories(dir_ + "/model").ok());
    ASSERT_TRUE(WriteModelFiles(dir_ + "/model", SmallConfig()).ok());
    ASSERT_TRUE(WriteRandomWeights(SmallConfig(), 3, dir_ + "/model").ok());
    std::ofstream rows(dir_ + "/rows.jsonl");
    for (int i = 0; i < 12; ++i) {
      rows << Json{{"prompt", "count " + std::to_string(i)},
                   {"completion", std::string(i + 3, 'x')}}
           << "\n";
    }
  }

  JobSpec Spec(const std::string& output) const {
    JobSpec spec;
    spec.workdir = dir_;
    TrainSpec train;
    train.model.path = "model";
    train.data.train = {"rows.jsonl"};
    train.data.max_seq_len = 64;
    train.optimizer.lr = 1e-2;
    train.schedule.max_steps = 6;
    train.batch = {.per_rank = 2, .accumulation = 2};
    train.checkpoint.every = 3;
    train.output_dir = output;
    spec.train = train;
    return spec;
  }

  RankProcessParts PartsOf(InProcessGroup& group, int rank, Supervisor& supervisor,
                           ProgressReporter& progress, RankFaults& faults, std::FILE* out) const {
    return {.make_device = [this, &group, rank](const RankEnv&, JobSpec*) -> Result<RankDevice> {
              return RankDevice{.ops = make_ops_(),
                                .communicator = group.Join(rank, operation_limit_)};
            },
            .supervisor = supervisor,
            .progress = progress,
            .faults = faults,
            .clock = SystemClock(),
            .out = out};
  }

  // As under plain torchrun: rank 0 commits the checkpoints.
  void RunRankAlone(InProcessGroup& group, int rank, const JobSpec& spec,
                    RankResult* result) const {
    Supervisor nobody{UniqueFd()};
    RankFaults faults;
    ProgressReporter progress(*ProgressWriter::Private(), SystemClock());
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(
        std::fopen((dir_ + "/out-" + std::to_string(rank)).c_str(), "w"), std::fclose);
    RankProcess process(spec, PartsOf(group, rank, nobody, progress, faults, out.get()));
    result->status =
        process.RunOnce({.rank = rank, .world_size = ranks_, .local_world_size = ranks_});
    result->step = process.step();
  }

  // Under a guardian that has put the generation into the environment.
  void RunRank(InProcessGroup& group, int rank, const JobSpec& spec, bool stop,
               RankResult* result) const {
    auto [mine, guardians] = *PacketSocket::Pair();
    if (stop) {
      ASSERT_TRUE(guardians.Send(R"({"type":"stop","reason":"drain"})").ok());
    }
    {
      Supervisor supervisor(mine.Release(), {.on_lost = [] {}});
      RankFaults faults;
      ProgressReporter progress(
          page_fd_ < 0 ? *ProgressWriter::Private() : *ProgressWriter::Map(page_fd_),
          SystemClock());
      const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen("/dev/null", "w"),
                                                                std::fclose);
      RankProcess process(spec, PartsOf(group, rank, supervisor, progress, faults, out.get()));
      result->status = process.RunOnce(
          {.rank = rank, .world_size = ranks_, .job_id = "j", .resume_file = resume_file_});
      result->step = process.step();
    }
    while (true) {
      const Result<Packet> packet = guardians.Receive(Deadline::After(Duration::zero()));
      if (!packet.ok()) break;
      result->messages.push_back(Json::parse(packet->data));
    }
  }

  template <typename RunOne>
  std::vector<RankResult> RunRanks(RunOne run_one) const {
    InProcessGroup group(ranks_, transport_);
    std::vector<RankResult> results(static_cast<std::size_t>(ranks_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back(
          [&, rank] { run_one(group, rank, &results[static_cast<std::size_t>(rank)]); });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  // `stop_rank` has been asked to stop before the first step; -1: none.
  std::vector<RankResult> Run(const JobSpec& spec, int stop_rank = -1) const {
    return RunRanks([&](InProcessGroup& group, int rank, RankResult* result) {
      RunRank(group, rank, spec, rank == stop_rank, result);
    });
  }

  std::vector<RankResult> RunAlone(const JobSpec& spec) const {
    return RunRanks([&](InProcessGroup& group, int rank, RankResult* result) {
      RunRankAlone(group, rank, spec, result);
    });
  }

  // Every rank with a job file of its own.
  std::vector<RankResult> RunEach(const std::vector<JobSpec>& specs) const {
    return RunRanks([&](InProcessGroup& group, int rank, RankResult* result) {
      RunRank(group, rank, specs[static_cast<std::size_t>(rank)], false, result);
    });
  }

  struct Watched {
    ProgressValues seen;  // when it was there, or after 20 s
    RankResult result;
  };
  // A gang of one, with its progress page in view: `release` lets go of what it waits for.
  Watched RunUntil(const JobSpec& spec, const std::function<bool(const ProgressValues&)>& there,
                   const std::function<void()>& release) {
    const UniqueFd page = *CreateProgressPage();
    const auto reader = *ProgressReader::Map(page.get());
    page_fd_ = page.get();
    Watched watched;
    std::thread run([&] { watched.result = Run(spec)[0]; });
    const Deadline deadline = Deadline::After(std::chrono::seconds(20));
    while (!(reader->Read(&watched.seen) && there(watched.seen)) && !deadline.Expired()) {
      std::this_thread::yield();
    }
    release();
    run.join();
    page_fd_ = -1;
    return watched;
  }

  // What the coordinator commits: the shards that the ranks reported at `step`.
  void Commit(const std::vector<RankResult>& results, Step step) {
    CheckpointManifest manifest{.step = step, .generation = 1, .job_id = "j", .world_size = ranks_};
    for (const RankResult& result : results) {
      for (const Json& message : result.messages) {
        if (message["type"] != "shard_written" || message["step"] != step) continue;
        manifest.directory = message["directory"];
        const Json& shard = message["shard"];
        manifest.shards.push_back(
            {shard["rank"], shard["file"], shard["bytes"], shard["checksum"]});
      }
    }
    ASSERT_EQ(manifest.shards.size(), static_cast<std::size_t>(ranks_));
    resume_file_ = dir_ + "/resume.json";
    ASSERT_TRUE(WriteFileAtomically(resume_file_, ManifestListToJson({manifest})).ok());
  }

  std::vector<Json> Metrics(const std::string& output) const {
    std::ifstream in(dir_ + "/" + output + "/metrics.jsonl");
    std::vector<Json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
  }

  Json ReadJson(const std::string& name) const { return Json::parse(*ReadFile(dir_ + "/" + name)); }

  // What rank 0 printed in the last RunAlone.
  std::string Said() const { return *ReadFile(dir_ + "/out-0"); }

  // Rewrites a tensor of the model; `edit` gets its elements.
  void EditWeights(const std::string& tensor,
                   const std::function<void(std::vector<float>&)>& edit) const {
    std::vector<TensorSpec> specs;
    std::vector<float> values;
    {
      const SafetensorsModel model = *SafetensorsModel::Open(dir_ + "/model");
      for (const std::string& name : model.names()) {
        specs.push_back(*model.Find(name));
        std::vector<float> part(static_cast<std::size_t>(specs.back().count()));
        ASSERT_TRUE(model.ReadFloats(name, 0, specs.back().count(), part.data()).ok());
        if (name == tensor) edit(part);
        values.insert(values.end(), part.begin(), part.end());
      }
    }
    auto writer = SafetensorsWriter::Create(dir_ + "/model/model.safetensors", specs);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->AppendFloats(values.data(), static_cast<std::int64_t>(values.size())).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }

  int ranks_ = 2;
  InProcessTransport transport_ = InProcessTransport::kSharedMemory;
  const TempDirForTest temp_;
  const std::string dir_ = temp_.path();
  std::string resume_file_;
  Duration operation_limit_ = std::chrono::minutes(10);
  int page_fd_ = -1;  // progress page of a gang of one, under a guardian
  std::function<std::unique_ptr<DeviceOps>()> make_ops_ = MakeCpuOps;  // for each rank
};

}  // namespace muster
