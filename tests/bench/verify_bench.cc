// From the last shard reported until a checkpoint is committed, and until it is verified: on one
// node and on four, with as many bytes on each, without a limit to reading and with one.
//
//   verify_bench DIR [MB [LIMIT]]
//
// DIR is on the file system in question; what is written there is removed. Each node has a shard of
// MB (100) MiB and may read LIMIT (50) megabytes in a second. The real controller, messages as
// they cross the wire, and one real reader per node, each on a thread of its own; neither gRPC nor
// a store. One JSON object on standard output, seconds of the median of three checkpoints.
// `verified_4_to_1` is the quotient under the limit; `committed_limited_to_free` that on four
// nodes.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/checkpoint_format/shard_frame.h"
#include "common/checkpoint_format/shard_name.h"
#include "common/wire/codec.h"
#include "coordinator/control/testing/control_harness.h"
#include "worker/agent/checkpoint_files.h"
#include "worker/agent/owner_files.h"
#include "worker/agent/scrubber.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using SteadyClock = std::chrono::steady_clock;

constexpr int kRounds = 3;

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::string JobYaml(const std::string& directory, int nodes) {
  return "name: bench\nresources: {nodes: " + std::to_string(nodes) +
         ", ranks_per_node: 1}\nworkdir: " + directory +
         "\ntrain:\n  model: {path: model}\n  data: {train: train.jsonl}\n"
         "  schedule: {max_steps: 1000}\n  checkpoint: {every: 10, keep: 2}\n"
         "  output: {dir: out}\n";
}

// A node's reader, and its answers.
class Reader {
 public:
  void Start(const ScrubCheckpoint& order) {
    const auto received = FromProto(ToProto(CoordinatorMessage(order)));
    MUSTER_CHECK(received.ok(), "the order does not cross the wire");
    verifier_.Start(std::get<ScrubCheckpoint>(*received), {});
  }
  CheckpointScrubbed Await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return answer_.has_value(); });
    const auto sent = ToProto(WorkerMessage(*std::exchange(answer_, std::nullopt)));
    return std::get<CheckpointScrubbed>(FromProto(sent).value());
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<CheckpointScrubbed> answer_;
  worker::OwnerFiles files_{""};
  worker::Scrubber background_{files_, [](const CheckpointScrubbed&) {}};
  worker::Scrubber verifier_{files_,
                             [this](CheckpointScrubbed scrubbed) {
                               const std::lock_guard lock(mutex_);
                               answer_ = std::move(scrubbed);
                               changed_.notify_all();
                             },
                             background_};
};

// A checkpoint's shards on disk, one per node.
std::vector<ShardInfo> WriteShards(const fs::path& directory, int nodes, std::uint64_t bytes) {
  std::vector<ShardInfo> shards;
  const ShardFrame frame = ShardFrame::Make(2, bytes);
  const std::string head = EncodeShardHead(frame, "{}");
  for (int rank = 0; rank < nodes; ++rank) {
    const std::string piece(kShardPieceBytes, static_cast<char>('a' + rank));
    const std::uint64_t sum = PieceChecksum(piece.data(), piece.size());
    std::string table;
    const std::string path = directory / ShardFileName(rank);
    std::ofstream file(path, std::ios::binary);
    file << head;
    for (std::uint64_t i = 0; i < frame.pieces(); ++i) {
      file << piece;
      table.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
    }
    table.resize(frame.table_bytes());
    file << table;
    file.close();
    MUSTER_CHECK(file.good(), "cannot write " + path);
    shards.push_back({rank, ShardFileName(rank), frame.file_bytes(), ShardChecksum(head, table)});
  }
  ::sync();  // so that reading does not wait for what is still being written
  return shards;
}

struct Took {
  double committed = 0;
  double verified = 0;
};

Took MeasureOne(ControlHarness& harness, const JobId& job, Step step,
                const std::vector<ShardInfo>& shards,
                std::vector<std::unique_ptr<Reader>>& readers) {
  Took took;
  const std::string directory = harness.Directory(job, step);
  const auto begin = SteadyClock::now();
  for (const ShardInfo& shard : shards)
    harness.Report(job, shard.rank,
                   ShardWritten{.step = step, .directory = directory, .shard = shard});
  const std::string front = harness.Attempt(job).nodes.front().value;
  for (const CheckpointCommitted& committed : harness.Take<CheckpointCommitted>(front)) {
    const auto received = FromProto(ToProto(CoordinatorMessage(committed)));
    const worker::CommitWritten written =
        worker::WriteManifest(std::get<CheckpointCommitted>(*received));
    MUSTER_CHECK(written.status.ok(), written.status.ToString());
  }
  took.committed = SecondsSince(begin);
  harness.CommitRecord(job, directory);
  const auto parts = harness.TakeParts(job);
  MUSTER_CHECK(parts.size() == readers.size(), "every node reads");
  std::size_t next = 0;
  for (const auto& [node, part] : parts) readers[next++]->Start(part);
  next = 0;
  for (const auto& [node, part] : parts) harness.Deliver(node, readers[next++]->Await());
  took.verified = SecondsSince(begin);
  const CheckpointRecord& record = harness.stored().checkpoints.back();
  MUSTER_CHECK(record.directory == directory && record.verified_unix_ms != 0, "it is not verified");
  return took;
}

json Measure(const fs::path& scratch, int nodes, std::uint64_t bytes, std::uint64_t limit) {
  ControllerOptions options;
  options.verify_bytes_per_second = limit;
  ControlHarness harness(options);
  std::vector<std::unique_ptr<Reader>> readers;
  for (int node = 0; node < nodes; ++node) {
    harness.Join("n" + std::to_string(node));
    readers.push_back(std::make_unique<Reader>());
  }
  const JobId job = harness.Submit(JobYaml(scratch, nodes));
  harness.RunTo(job, 5);
  harness.Forget();
  std::vector<double> committed;
  std::vector<double> verified;
  for (int round = 1; round <= kRounds; ++round) {
    const Step step = 10 * round;
    const fs::path directory = scratch / "out/checkpoints" / harness.Directory(job, step);
    fs::create_directories(directory);
    const std::vector<ShardInfo> shards = WriteShards(directory, nodes, bytes);
    const Took took = MeasureOne(harness, job, step, shards, readers);
    committed.push_back(took.committed);
    verified.push_back(took.verified);
  }
  fs::remove_all(scratch / "out");
  return {{"nodes", nodes},
          {"limit_bytes_per_second", limit},
          {"committed_seconds", Median(committed)},
          {"verified_seconds", Median(verified)}};
}

int Run(const std::string& directory, std::uint64_t megabytes, std::uint64_t limit) {
  const fs::path scratch = fs::absolute(directory) / ("verify_bench." + std::to_string(::getpid()));
  fs::create_directories(scratch);
  json runs = json::array();
  for (const std::uint64_t each : {std::uint64_t{0}, limit * 1'000'000})
    for (const int nodes : {1, 4}) runs.push_back(Measure(scratch, nodes, megabytes << 20, each));
  fs::remove_all(scratch);
  const auto quotient = [&](const char* figure, int of, int by) {
    return runs[of][figure].get<double>() / runs[by][figure].get<double>();
  };
  const json figures = {{"cores", std::thread::hardware_concurrency()},
                        {"bytes_per_node", megabytes << 20},
                        {"runs", runs},
                        {"verified_4_to_1", quotient("verified_seconds", 3, 2)},
                        {"committed_limited_to_free", quotient("committed_seconds", 3, 1)}};
  std::printf("%s\n", figures.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: verify_bench DIR [MB [LIMIT]]\n");
    return 2;
  }
  const auto number = [&](int index, std::uint64_t otherwise) {
    return argc > index ? std::strtoull(argv[index], nullptr, 10) : otherwise;
  };
  return muster::Run(argv[1], number(2, 100), number(3, 50));
}
