// JobSpec: what a user asks for, as values with defaults. docs/job-file.md explains every key.
//
// One source of truth for the CLI, the coordinator, the worker and the trainer: all of them parse
// the same YAML with ParseJobSpec (parse.h), so a key means the same everywhere. A key that this
// version does not act on is refused there by name and has no field here.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace muster {

struct ResourceSpec {
  int nodes = 1;
  int ranks_per_node = 1;
  std::string device = "cpu";           // only cpu in this version
  int cpus_per_rank = 1;                // OMP_NUM_THREADS of a rank
  std::vector<std::string> exclude;     // node names that the scheduler must not use
  std::int64_t time_limit_seconds = 0;  // wall time of the whole job from its first launch; 0: none
};

struct RestartSpec {
  // Attempts in a row that may end without a newer committed checkpoint before the job fails.
  int max_without_progress = 3;
};

struct ModelSpec {
  std::string path;  // Hugging Face directory
};

struct DataSpec {
  std::string train;       // .jsonl
  std::string eval;        // empty: none. Not acted on in this version, refused by the parser
  int max_seq_len = 2048;  // tokens; longer rows are truncated and counted
  std::string chat_template = "auto";  // auto | chatml
  bool shuffle = true;
};

enum class MixedPrecision { kBf16, kFp32 };

struct FsdpSpec {
  std::string strategy = "full_shard";
  MixedPrecision mixed_precision = MixedPrecision::kBf16;
};

struct OptimizerSpec {
  double lr = 5.0e-5;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1.0e-8;
  double weight_decay = 0.01;
  double grad_clip = 1.0;  // global L2 norm; 0: no clipping
};

struct ScheduleSpec {
  std::string kind = "cosine";  // cosine | constant
  double warmup_ratio = 0.03;   // of max_steps
  std::int64_t max_steps = 0;   // exactly one of max_steps and epochs is set
  double epochs = 0;
};

struct BatchSpec {
  int per_rank = 1;      // rows per micro-batch of a rank
  int accumulation = 1;  // micro-batches per step
};

struct CheckpointSpec {
  std::int64_t every = 50;  // steps
  int keep = 3;             // committed checkpoints kept
};

struct TrainSpec {
  ModelSpec model;
  DataSpec data;
  FsdpSpec fsdp;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  BatchSpec batch;
  CheckpointSpec checkpoint;
  bool deterministic = true;
  std::int64_t logging_every = 25;  // steps between lines on the rank's standard output
  std::string output_dir = "out";   // relative to workdir
  std::uint64_t seed = 42;
};

enum class RendezvousKind {
  kAgent,  // muster-trainer store serves MASTER_PORT; ranks join as clients
  kRank0,  // rank 0 binds MASTER_PORT itself
};

struct JobSpec {
  std::string name;
  ResourceSpec resources;
  int priority = 50;  // 0 to 100; higher is placed first
  RestartSpec restart;
  std::map<std::string, std::string> env;
  std::string workdir = ".";       // absolute once the CLI has sent it
  std::optional<TrainSpec> train;  // exactly one of train and command
  std::vector<std::string> command;
  RendezvousKind rendezvous = RendezvousKind::kAgent;

  int world_size() const { return resources.nodes * resources.ranks_per_node; }
};

}  // namespace muster
