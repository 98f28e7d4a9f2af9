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
#include <string_view>
#include <vector>

#include "common/base/boxed.h"
#include "common/resources/node_demand.h"

namespace muster {

// The most that a cluster, and so a job, may have.
inline constexpr int kMaxClusterNodes = 16384;

inline constexpr int kMaxPriority = 100;

// The rule for names of jobs, queues and priority classes.
bool FollowsJobNameRule(std::string_view name);
inline constexpr std::string_view kJobNameRule = "1 to 63 letters, digits, '-', '_' or '.'";

struct ResourceSpec {
  int nodes = 1;
  int min_nodes = 0;  // a gang may shrink to so many; 0: to none fewer than `nodes`
  int spares = 0;     // nodes held ready beside the gang's
  int ranks_per_node = 1;
  std::string device = "cpu";  // cpu | cuda
  bool sees_all_gpus = false;  // a command's ranks see all GPUs that the job has on their node
  bool share_spares = false;   // its spares may be those of other jobs that say so too
  DeviceDemand gpus;           // none without device: cuda
  double peak_tflops = 0;      // of a device, in the compute type; 0: a known GPU's, or nothing
  int cpus_per_rank = 1;       // OMP_NUM_THREADS of a rank
  std::uint64_t memory_per_rank = 0;  // bytes; 0: not limited
  std::string cpu_binding = "auto";   // auto | none: whether ranks are kept to processors
  std::vector<std::string> exclude;   // node names that the scheduler must not use
  std::vector<LabelRule> labels;      // of its nodes, all of them
  TopologyDemand topology;
  std::int64_t time_limit_seconds = 0;  // wall time of the whole job from its first launch; 0: none

  NodeDemand per_node() const;
  friend bool operator==(const ResourceSpec&, const ResourceSpec&) = default;
};

struct RestartSpec {
  int max_without_progress = 3;  // attempts in a row without progress until the job fails
  bool in_place = true;          // survivors of a fault keep their processes
  int standbys = 1;              // loaded processes held ready per node
  friend bool operator==(const RestartSpec&, const RestartSpec&) = default;
};

// What happens elsewhere when something happens to the job.
struct OnEventSpec {
  std::vector<std::string> kinds;  // kinds of events (docs/job-lifecycle.md); empty: none
  std::string webhook;             // http[s]://HOST[:PORT]/PATH that gets the event as JSON by POST
  friend bool operator==(const OnEventSpec&, const OnEventSpec&) = default;
};

// A token that the model's tokenizer is to have.
struct TokenSpec {
  std::string content;
  bool special = true;  // left out of decoded texts on request
  friend bool operator==(const TokenSpec&, const TokenSpec&) = default;
};

struct ModelSpec {
  std::string path;  // Hugging Face directory
  // Given, be it empty: embedding and head get rows for all ids that the tokenizer has with these.
  std::optional<std::vector<TokenSpec>> add_tokens;
  int pad_vocab_to = 0;  // their number of rows becomes a multiple of it; 0: it is left
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

struct DataSpec {
  // Files and folders: rows of text (.jsonl, .json), or token ids (.npy, .bin).
  std::vector<std::string> train;
  std::vector<std::string> eval;  // the same, to evaluate on; empty: none
  double eval_ratio = 0;          // of train's rows, to evaluate on instead; 0: none
  int max_seq_len = 2048;  // tokens; longer rows are truncated and counted. Row length of a .bin
  std::string text_field = "text";     // the key of a row of plain text
  std::string chat_template = "auto";  // auto, none, a built-in one's name, or a .jinja file
  std::string chat_date;      // "2026-01-31", that a template writes as the day; empty: it has none
  bool train_on_all = false;  // also on what users say and prompts, not answers alone
  bool shuffle = true;
  bool group_by_length = false;  // rows of like length in one batch
  bool packing = false;  // several rows as documents in one of max_seq_len, instead of padding
  std::string cache;  // of tokens: a directory, or "none"; empty: .muster-cache beside output.dir
  friend bool operator==(const DataSpec&, const DataSpec&) = default;
};

// What lora.target_modules says where adapters are on every linear layer of a model's blocks.
inline const std::vector<std::string> kAllLinear = {"all-linear"};

enum class LoraBias { kNone, kAll, kLoraOnly };

// Low-rank adapters: what is trained instead of the model's matrices.
struct LoraSpec {
  int r = 16;
  double alpha = 32;    // their products are scaled by alpha / r
  double dropout = 0;   // how likely an element of an adapter's input counts nothing
  bool rslora = false;  // scaled by alpha / sqrt(r)
  LoraBias bias = LoraBias::kNone;
  // Or names of lora_targets.h, in a block's order.
  std::vector<std::string> target_modules = kAllLinear;
  std::vector<std::string> modules_to_save;  // trained whole, such as embed_tokens
  std::string init_from;                     // an adapter's directory; empty: new ones
  friend bool operator==(const LoraSpec&, const LoraSpec&) = default;
};

// How the matrices of blocks are held that a job with adapters does not train: in NF4.
struct QuantizationSpec {
  bool double_quant = true;  // absmax of its blocks in 8 bits
  friend bool operator==(const QuantizationSpec&, const QuantizationSpec&) = default;
};

enum class ShardingStrategy {
  kFullShard,         // parameters, gradients and optimizer state over all ranks
  kShardGradOp,       // the same, but gathered parameters stay until the optimizer's step
  kNoShard,           // every rank holds everything; gradients are all-reduced
  kHybridShard,       // kFullShard within a node, replicas across nodes
  kHybridShardZero2,  // kShardGradOp within a node, replicas across nodes
};

// What is multiplied: weights in the gathered buffers, activations, their gradients.
enum class MixedPrecision { kBf16, kFp16, kFp32, kFp64 };

// What optimizer state and sums are kept in. kAuto: fp32, and fp64 where mixed_precision is fp64.
enum class StateType { kAuto, kBf16, kFp16, kFp32, kFp64 };

enum class ActivationCheckpointing {
  kNone,         // everything that backward needs is kept
  kSelective,    // norms and the gated activation are computed again
  kFull,         // only the input of each block is kept
  kFullOffload,  // kFull, and the inputs wait in host memory
};

struct FsdpSpec {
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  int blocks_per_unit = 1;  // transformer blocks that are gathered together
  int expert_parallel = 1;  // ranks that the experts of each sparse layer are divided among
  MixedPrecision mixed_precision = MixedPrecision::kBf16;
  StateType reduce_dtype = StateType::kAuto;  // of gradient sums across ranks
  StateType buffer_dtype = StateType::kAuto;  // of the rotary tables
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::kSelective;
  bool cpu_offload = false;  // parameters, gradients and optimizer state in host memory
  // Reduce gradients after every micro-batch (less memory) or once per step (less traffic).
  bool reduce_every_micro_batch = true;
  friend bool operator==(const FsdpSpec&, const FsdpSpec&) = default;
};

struct OptimizerSpec {
  double lr = 5.0e-5;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1.0e-8;
  double weight_decay = 0.01;
  double grad_clip = 1.0;                       // global L2 norm; 0: no clipping
  StateType master_weights = StateType::kAuto;  // fp32 or bf16; fp64 with fp64
  StateType moments = StateType::kAuto;
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

struct ScheduleSpec {
  std::string kind = "cosine";  // cosine | linear | constant
  double warmup_ratio = 0.03;   // of the steps, where warmup_steps is not given
  std::optional<std::int64_t> warmup_steps;
  std::int64_t max_steps = 0;  // exactly one of max_steps and epochs is set
  double epochs = 0;
  friend bool operator==(const ScheduleSpec&, const ScheduleSpec&) = default;
};

struct BatchSpec {
  int per_rank = 1;      // rows per micro-batch of a rank
  int accumulation = 1;  // micro-batches per step
  friend bool operator==(const BatchSpec&, const BatchSpec&) = default;
};

struct CheckpointSpec {
  std::int64_t every = 50;  // steps
  int keep = 3;             // committed checkpoints kept
  friend bool operator==(const CheckpointSpec&, const CheckpointSpec&) = default;
};

// When a training ends because evaluations find nothing better any more.
struct EarlyStopSpec {
  int patience = 0;      // evaluations in a row that may bring nothing better; 0: never ends
  double min_delta = 0;  // by which a loss must be lower to count as better
  friend bool operator==(const EarlyStopSpec&, const EarlyStopSpec&) = default;
};

// What is measured on the rows of data.eval or data.eval_ratio, and when.
struct EvalSpec {
  std::int64_t every = 0;            // steps; 0: checkpoint.every
  bool at_start = false;             // before the first step too
  std::vector<std::string> samples;  // prompts that the model goes on from
  int max_new_tokens = 64;           // of each
  EarlyStopSpec early_stop;
  bool keep_best = true;  // the checkpoint of the lowest loss stays whatever checkpoint.keep is
  friend bool operator==(const EvalSpec&, const EvalSpec&) = default;
};

// Which weights a job ends with.
enum class ExportedState { kLast, kBest };

enum class BuddyCopies { kAuto, kOn, kOff };

// Sealed copies of the state in host memory; docs/recovery.md.
struct SnapshotSpec {
  std::int64_t every = 1;  // steps; 0: none
  BuddyCopies buddy = BuddyCopies::kAuto;
  friend bool operator==(const SnapshotSpec&, const SnapshotSpec&) = default;
};

// Where the weights (and the optimizer's state) come from instead of model.path.
struct InitFromSpec {
  std::string path;        // checkpoint directory or single-file state dict; empty: model.path
  bool optimizer = false;  // take its moments too
  friend bool operator==(const InitFromSpec&, const InitFromSpec&) = default;
};

struct ProfileSpec {
  std::int64_t start = 0;  // first profiled step, counted from 1; 0: no profile
  std::int64_t steps = 3;
  friend bool operator==(const ProfileSpec&, const ProfileSpec&) = default;
};

// What a step whose loss or gradient is not finite does.
enum class NonFinitePolicy {
  kStop,  // ends the job, with step, rank and tensor
  kSkip,  // leaves the weights as they are and goes on; three such steps in a row end the job
};

struct TrainSpec {
  ModelSpec model;
  InitFromSpec init_from;
  std::optional<LoraSpec> lora;  // nothing: the whole model is trained
  std::optional<QuantizationSpec> quantization;
  DataSpec data;
  FsdpSpec fsdp;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  BatchSpec batch;
  CheckpointSpec checkpoint;
  EvalSpec eval;
  SnapshotSpec snapshot;
  ProfileSpec profile;
  NonFinitePolicy nonfinite = NonFinitePolicy::kStop;
  bool deterministic = true;
  std::int64_t logging_every = 25;  // steps between lines on the rank's standard output
  std::string output_dir = "out";   // relative to workdir
  std::int64_t output_max_shard_bytes = 5'000'000'000;  // of a file of the trained model
  ExportedState output_export = ExportedState::kLast;
  std::uint64_t seed = 42;

  bool evaluates() const { return !data.eval.empty() || data.eval_ratio > 0; }
  std::int64_t eval_every() const { return eval.every > 0 ? eval.every : checkpoint.every; }
  bool keeps_best() const { return evaluates() && eval.keep_best; }
  friend bool operator==(const TrainSpec&, const TrainSpec&) = default;
};

enum class RendezvousKind {
  kAgent,  // muster-trainer store serves MASTER_PORT; ranks join as clients
  kRank0,  // rank 0 binds MASTER_PORT itself
};

struct ContainerMount {
  std::string source;  // of the node; absolute
  std::string target;  // in the root; absolute
  bool read_only = false;
  friend bool operator==(const ContainerMount&, const ContainerMount&) = default;
};

// The root directory in which ranks run instead of their node's own; docs/rank-containers.md.
struct ContainerSpec {
  std::string image;  // an unpacked root's absolute path, or a name of podman's; empty: none
  std::vector<ContainerMount> mounts;
  friend bool operator==(const ContainerSpec&, const ContainerSpec&) = default;
};

// A stored secret that the ranks get (docs/secrets.md): as a variable, or as the path of a file
// that they alone can read, which the variable holds.
struct SecretUse {
  std::string name;
  std::string variable;
  bool as_file = false;
  friend bool operator==(const SecretUse&, const SecretUse&) = default;
};

struct JobSpec {
  std::string name;
  ResourceSpec resources;
  std::optional<int> priority;  // 0 to kMaxPriority; higher is placed first; empty: the queue's
  std::string queue;            // empty: kDefaultQueue
  std::string priority_class;   // empty: the default one
  std::string begin;         // not placed before (job_times.h); RFC 3339 once the CLI has sent it
  bool hold = false;         // not placed until it is released
  bool preemptible = false;  // may run on shared spares, and is stopped when they are needed
  RestartSpec restart;
  OnEventSpec on_event;
  std::map<std::string, std::string> env;
  std::vector<SecretUse> secrets;
  std::string workdir = ".";  // absolute once the CLI has sent it
  ContainerSpec container;
  Boxed<TrainSpec> train;  // exactly one of train and command
  std::vector<std::string> command;
  RendezvousKind rendezvous = RendezvousKind::kAgent;

  // As submitted: what the global batch is counted by. An attempt may have fewer ranks.
  int world_size() const { return resources.nodes * resources.ranks_per_node; }
  int min_nodes() const { return resources.min_nodes > 0 ? resources.min_nodes : resources.nodes; }
  friend bool operator==(const JobSpec&, const JobSpec&) = default;
};

}  // namespace muster
