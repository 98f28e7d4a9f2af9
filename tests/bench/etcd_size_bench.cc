// What an etcd has to keep, and what a start reads of it.
//
//   etcd_size_bench ETCD-URLS [SUBMITS [LIVE]]
//
// Submits so many jobs through the store, each over two nodes: submitted, started, two checkpoints,
// ended, archived; with an event and an audit line for each change but the checkpoints'. Both are
// removed by number alone, as where they are exported. Then it puts LIVE jobs that run, and opens
// the store anew: jobs and attempts are read, and the index of the archive. One JSON object on
// standard output; file sizes are of the first member. What it writes stays, under a prefix of its
// own: give it an etcd that is thrown away, with --quota-backend-bytes of some GiB.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "common/audit/audit_chain.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "coordinator/store/etcd_defragmenter.h"
#include "coordinator/store/etcd_reader.h"
#include "coordinator/store/etcd_store.h"
#include "coordinator/store/record_codec.h"

namespace muster {
namespace {

using nlohmann::json;
using SteadyClock = std::chrono::steady_clock;

constexpr int kUnderWay = 256;  // commits
constexpr int kArchivedAtOnce = 64;
constexpr int kSampled = 1000;  // jobs between two looks at the file's size

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// The values are as a cluster has them: ids, times, losses and checksums differ from job to job,
// most of the job file does not.
class Jobs {
 public:
  JobRecord Submitted();
  void Start(JobRecord* job, AttemptRecord* attempt);
  void End(JobRecord* job, AttemptRecord* attempt, std::vector<CheckpointRecord>* checkpoints);
  std::string Hex(int digits);

 private:
  std::int64_t Between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  double Fraction() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  std::string JobFile(const std::string& name, const std::string& output);

  std::mt19937_64 random_{1};
  std::uint64_t submitted_ = 0;
  std::int64_t now_ms_ = 1'790'000'000'000;
};

std::string Jobs::Hex(int digits) {
  std::string text;
  for (int i = 0; i < digits; ++i) text += "0123456789abcdef"[random_() % 16];
  return text;
}

std::string Jobs::JobFile(const std::string& name, const std::string& output) {
  return "name: " + name +
         "\nresources:\n  nodes: 2\n  ranks_per_node: 1\n  device: cpu\n  cpus_per_rank: 1\n"
         "  cpu_binding: auto\npriority: 50\nrestart:\n  max_without_progress: 3\n"
         "workdir: /shared/jobs\ntrain:\n  model:\n    path: /shared/models/llama\n  data:\n"
         "    train: /shared/data/self_instruct_user_oriented.jsonl\n    eval_ratio: 0.05\n"
         "    max_seq_len: 256\n    shuffle: true\n    packing: false\n  fsdp:\n"
         "    strategy: full_shard\n    blocks_per_unit: 1\n    expert_parallel: 1\n"
         "    mixed_precision: bf16\n    reduce: micro_batch\n"
         "    activation_checkpointing: selective\n  optimizer:\n    lr: " +
         std::to_string(Fraction() / 1000) +
         "\n    betas: [0.9, 0.95]\n    weight_decay: 0.01\n    grad_clip: 1.0\n"
         "    master_weights: fp32\n    moments: fp32\n  schedule:\n    kind: cosine\n"
         "    warmup_ratio: 0.03\n    epochs: 3\n  batch:\n    per_rank: 4\n    accumulation: 2\n"
         "  checkpoint: {every: 25, keep: 3}\n  eval:\n    every: 25\n    max_new_tokens: 32\n"
         "    early_stop: {patience: 5}\n    keep_best: true\n  nonfinite: stop\n  logging:\n"
         "    every: 10\n  output:\n    dir: " +
         output + "\n    max_shard_size: 5GB\n    export: last\n  seed: " +
         std::to_string(Between(1, 1000)) + "\n";
}

JobRecord Jobs::Submitted() {
  now_ms_ += Between(100, 60'000);
  JobRecord job;
  job.id = JobId{Hex(10)};
  job.owner = "user" + std::to_string(Between(1, 40));
  job.submitter = job.owner;
  job.name = "sft-" + std::to_string(Between(1, 3000));
  job.key = Hex(32);
  job.output_dir = "/shared/jobs/" + job.owner + "/" + job.name + "/out";
  job.spec_yaml = JobFile(job.name, job.output_dir);
  job.priority = 50;
  job.submit_order = ++submitted_;
  job.world_size = 2;
  job.state = JobState::kQueued;
  job.max_steps = Between(30, 5000);
  job.submitted_unix_ms = now_ms_;
  job.queue = "team-" + std::to_string(Between(1, 12));
  return job;
}

void Jobs::Start(JobRecord* job, AttemptRecord* attempt) {
  job->state = JobState::kRunning;
  job->generation = 1;
  job->started_unix_ms = job->submitted_unix_ms + Between(1000, 10'000'000);
  attempt->job = job->id;
  attempt->generation = 1;
  attempt->state = AttemptState::kRunning;
  attempt->started_unix_ms = job->started_unix_ms;
  attempt->tier = Tier::kLaunch;
  attempt->master_address = "10.0.0." + std::to_string(Between(1, 250));
  attempt->master_port = static_cast<int>(Between(20'000, 60'000));
  for (int rank = 0; rank < 2; ++rank) {
    attempt->nodes.push_back(NodeName{"node-" + std::to_string(Between(100, 200))});
    RankRecord& record = attempt->ranks.emplace_back();
    record.rank = rank;
    record.node_rank = rank;
    record.node = attempt->nodes.back();
    record.pid = static_cast<int>(Between(1000, 4'000'000));
    record.state = RankState::kRunning;
  }
  attempt->seconds = {.reform = Fraction() / 10, .load = Fraction(), .first_step = Fraction()};
}

void Jobs::End(JobRecord* job, AttemptRecord* attempt, std::vector<CheckpointRecord>* checkpoints) {
  job->state = JobState::kSucceeded;
  job->ended_unix_ms = job->started_unix_ms + Between(10'000, 100'000'000);
  job->progress_unix_ms = job->ended_unix_ms - Between(1, 3000);
  job->step = job->best_step = job->max_steps;
  job->committed_step = job->max_steps / 25 * 25;
  job->loss = 3 + Fraction();
  job->loss_at_start = 9 + Fraction();
  job->tokens = Between(1'000'000, 1'000'000'000);
  job->checkpoint_seconds = Fraction();
  job->usage.until_unix_ms = job->ended_unix_ms;
  for (const TimeState state : {TimeState::kStep, TimeState::kCheckpoint, TimeState::kRecovery,
                                TimeState::kQueue, TimeState::kIdle})
    Figure(job->usage.micros, state) = Between(10'000, 1'000'000'000);
  attempt->state = AttemptState::kEnded;
  attempt->ended_unix_ms = job->ended_unix_ms;
  attempt->last_step = job->step;
  for (RankRecord& rank : attempt->ranks) {
    rank.state = RankState::kExited;
    rank.end.ended = true;
  }
  for (Step step : {job->committed_step - 25, job->committed_step}) {
    CheckpointRecord& checkpoint = checkpoints->emplace_back();
    checkpoint.job = job->id;
    checkpoint.step = step;
    checkpoint.generation = 1;
    checkpoint.directory = "step-" + std::to_string(100'000'000 + step).substr(1) + "-g1";
    checkpoint.world_size = 2;
    for (int rank = 0; rank < 2; ++rank)
      checkpoint.shards.push_back({.rank = rank,
                                   .file = "rank-0000" + std::to_string(rank) + ".shard",
                                   .bytes = 19'000'000,
                                   .checksum = "xxh3:" + Hex(16)});
    checkpoint.committed_unix_ms = job->ended_unix_ms - Between(1, 100'000);
    checkpoint.state = CheckpointState::kCommitted;
    checkpoint.manifest_written = true;
    checkpoint.verified_unix_ms = checkpoint.committed_unix_ms + Between(1, 10'000);
  }
}

class Bench {
 public:
  explicit Bench(const std::string& urls);
  json Run(int submits, int live);

 private:
  void Open();
  void Commit(std::vector<StoreOperation> operations);
  void AwaitAll();
  void AppendChange(const JobRecord& job, const std::string& kind,
                    std::vector<StoreOperation>* operations);
  void Submit(int jobs);
  void PutLive(int jobs);
  std::int64_t FileBytes();
  std::int64_t BytesUnder(const std::string& folder);
  std::int64_t Defragmented();

  EtcdStoreOptions options_;
  std::unique_ptr<EtcdClient> client_;
  std::unique_ptr<EtcdStore> store_;
  Jobs jobs_;
  AuditHead head_;
  std::uint64_t seq_ = 0;
  std::int64_t largest_ = 0;  // size of the file
  std::int64_t as_text_ = 0;  // of archived records
  std::mutex mutex_;
  std::condition_variable changed_;
  int under_way_ = 0;
};

Bench::Bench(const std::string& urls) {
  options_.access.members = ParseEtcdUrls(urls).value();
  options_.prefix = "/muster-size-bench-" + std::to_string(::getpid()) + "/";
  options_.lease_seconds = 60;  // a busy machine is no reason to stop
  client_ = EtcdClient::Open(options_.access, kEtcdAnswer).value();
}

void Bench::Open() {
  store_.reset();
  auto opened = EtcdStore::Open(options_);
  MUSTER_CHECK(opened.ok(), opened.status().ToString());
  store_ = *std::move(opened);
}

void Bench::Commit(std::vector<StoreOperation> operations) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return under_way_ < kUnderWay; });
    ++under_way_;
  }
  store_->Commit(std::move(operations), [this](const Status& status) {
    MUSTER_CHECK(status.ok(), status.ToString());
    const std::lock_guard lock(mutex_);
    --under_way_;
    changed_.notify_one();
  });
}

void Bench::AwaitAll() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return under_way_ == 0; });
}

void Bench::AppendChange(const JobRecord& job, const std::string& kind,
                         std::vector<StoreOperation>* operations) {
  EventRecord event;
  event.seq = ++seq_;
  event.unix_ms = job.submitted_unix_ms;
  event.job = job.id;
  event.kind = kind;
  event.message = "generation 1 " + kind + " on 2 nodes";
  operations->push_back(AppendEvent{std::move(event)});
  std::string line = SealAuditEntry({.unix_ms = job.submitted_unix_ms,
                                     .actor = job.owner,
                                     .peer = "10.0.0.7:40112",
                                     .operation = kind,
                                     .object = "job " + job.id.value,
                                     .outcome = "OK"},
                                    &head_);
  operations->push_back(AppendAudit{head_.seq, std::move(line)});
}

void Bench::Submit(int jobs) {
  std::vector<StoreOperation> to_archive;
  for (int i = 1; i <= jobs; ++i) {
    JobRecord job = jobs_.Submitted();
    AttemptRecord attempt;
    std::vector<CheckpointRecord> checkpoints;
    std::vector<StoreOperation> operations = {PutJob{job}};
    AppendChange(job, "submitted", &operations);
    Commit(std::move(operations));
    jobs_.Start(&job, &attempt);
    operations = {PutJob{job}, PutAttempt{attempt}};
    AppendChange(job, "launched", &operations);
    Commit(std::move(operations));
    jobs_.End(&job, &attempt, &checkpoints);
    as_text_ += static_cast<std::int64_t>(Encode(job).size() + Encode(attempt).size());
    for (const CheckpointRecord& each : checkpoints) {
      as_text_ += static_cast<std::int64_t>(Encode(each).size());
      Commit({PutCheckpoint{each}});
    }
    operations = {PutJob{job}, PutAttempt{attempt}};
    AppendChange(job, "succeeded", &operations);
    Commit(std::move(operations));
    to_archive.push_back(ArchiveJob{ArchivedJobOf(job)});
    if (to_archive.size() == kArchivedAtOnce || i == jobs) Commit(std::exchange(to_archive, {}));
    if (i % kSampled == 0) largest_ = std::max(largest_, FileBytes());
  }
  AwaitAll();
}

void Bench::PutLive(int jobs) {
  for (int i = 0; i < jobs; ++i) {
    JobRecord job = jobs_.Submitted();
    AttemptRecord attempt;
    jobs_.Start(&job, &attempt);
    Commit({PutJob{std::move(job)}, PutAttempt{std::move(attempt)}});
  }
  AwaitAll();
}

std::int64_t Bench::FileBytes() {
  const auto members = client_->Members(kEtcdAnswer);
  MUSTER_CHECK(members.ok(), members.status().ToString());
  return members->front().file_bytes;
}

std::int64_t Bench::BytesUnder(const std::string& folder) {
  std::int64_t bytes = 0;
  const std::string first = options_.prefix + folder;
  const Status read =
      EtcdReader(*client_).Read(first, EtcdPrefixEnd(first), [&](const EtcdEntry& entry) {
        bytes += static_cast<std::int64_t>(entry.key.size() + entry.value.size());
        return OkStatus();
      });
  MUSTER_CHECK(read.ok(), read.ToString());
  return bytes;
}

// The size of the file without history and free pages.
std::int64_t Bench::Defragmented() {
  etcdserverpb::RangeRequest any;
  any.set_key(options_.prefix + "format");
  const auto newest = client_->Range(any, kEtcdAnswer);
  MUSTER_CHECK(newest.ok(), newest.status().ToString());
  const Status compacted = client_->Compact(newest->header().revision(), std::chrono::minutes(1));
  MUSTER_CHECK(compacted.ok(), compacted.ToString());
  // It deletes in the background, so a defragmentation may come too early: until nothing changes.
  std::int64_t before = 0;
  for (std::int64_t bytes = FileBytes(); bytes != before;) {
    before = bytes;
    const std::string address = client_->Members(kEtcdAnswer)->front().address;
    const Status done = client_->Defragment(address, std::chrono::minutes(5));
    MUSTER_CHECK(done.ok(), done.ToString());
    bytes = FileBytes();
  }
  return before;
}

json Bench::Run(int submits, int live) {
  Open();
  MUSTER_CHECK(store_->Load().ok(), "load");
  const std::int64_t empty = FileBytes();
  const auto begin = SteadyClock::now();
  {
    const auto defragmenter =
        EtcdDefragmenter::Start({.access = options_.access, .interval = std::chrono::seconds(5)});
    Submit(submits);
  }
  json figures = {{"submits", submits}, {"submits_per_second", submits / SecondsSince(begin)}};
  const std::int64_t values = BytesUnder("archive");
  const std::int64_t defragmented = Defragmented();
  const std::int64_t others = BytesUnder("events/") + BytesUnder("audit/");
  figures["file_bytes"] = {{"empty", empty}, {"largest", largest_}, {"defragmented", defragmented}};
  if (submits > 0)
    figures["bytes_of_an_archived_job"] = {
        {"text", as_text_ / submits},
        {"keys_and_values", values / submits},
        {"in_the_file", static_cast<double>(defragmented - empty - others) / submits}};
  figures["bytes_of_events_and_audit"] = others;
  PutLive(live);
  for (int i = 0; i < 3; ++i) {
    Open();
    const auto loads = SteadyClock::now();
    const auto state = store_->Load();
    MUSTER_CHECK(state.ok(), state.status().ToString());
    figures["load"]["seconds"].push_back(SecondsSince(loads));
    figures["load"]["jobs"] = state->jobs.size();
    figures["load"]["attempts"] = state->attempts.size();
    figures["load"]["archived"] = state->archived.size();
  }
  return figures;
}

int Main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::fprintf(stderr, "usage: etcd_size_bench ETCD-URLS [SUBMITS [LIVE]]\n");
    return 2;
  }
  const int submits = argc > 2 ? std::atoi(argv[2]) : 100'000;
  const int live = argc > 3 ? std::atoi(argv[3]) : 50'000;
  std::printf("%s\n", Bench(argv[1]).Run(submits, live).dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
