// The verbs of muster-trainer: one function each, in a file of its own.
//
// Data goes to standard output, everything else to standard error. Each returns the process's exit
// code. Called once, by main's thread; Torch exceptions pass through to main.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster {

struct TrainOptions {
  std::string file;                    // the job file
  std::string accelerate_config;       // of accelerate or DeepSpeed, for what the job does not say
  std::vector<std::string> overrides;  // "train.batch.per_rank=2"
};
// One rank of a job. Never returns while another thread may hold the
// process up: a rank that lost its peers ends at once.
int RunTrain(const TrainOptions& options);

// Two steps of the job with its own rows and ranks, a checkpoint, and one step from that: a short
// report, and nothing left behind. Started as RunTrain is, without a cluster. 0: all is well.
int RunSmoke(const TrainOptions& options);

// What a job will need on given hardware. 0 and "" leave what the job, the table of known devices
// or this machine say.
struct PlanOptions {
  std::string file;
  std::string accelerate_config;       // of accelerate or DeepSpeed; empty: none
  std::vector<std::string> overrides;  // "train.batch.per_rank=2"
  std::string device;                  // cpu, a known one (trainer/plan/hardware.h), or any name
  std::string model;                   // directory or config.json, instead of train.model.path
  int nodes = 0;
  int ranks_per_node = 0;
  int lora_r = 0;         // adapters of this width on all linear layers; 0: as the job says
  bool nf4 = false;       // with the frozen weights in 4 bits
  std::int64_t rows = 0;  // of the data
  double memory_gb = 0;   // of a device, 10^9 bytes
  double host_memory_gb = 0;
  double peak_tflops = 0;
  double achievable = 0;  // share of the peak, 0 to 1
  double link_gb_s = 0;
  double network_gbit_s = 0;     // of a node
  double cost_per_hour = 0;      // of all devices together
  bool standalone = false;       // as torchrun starts it: without snapshots
  std::string output = "table";  // table | json
};
// Exit code 0: it fits; 1: it does not.
int RunPlanVerb(const PlanOptions& options);

struct InitModelOptions {
  std::string preset;  // tiny | small; or
  std::string config;  // a config.json
  std::string out;
  std::uint64_t seed = 42;
};
int RunInitModel(const InitModelOptions& options);

struct ScoreOptions {
  std::string model;
  std::string adapter;  // PEFT directory; empty: none
  // One of these three.
  std::vector<std::string> data;  // files that training takes
  std::string text;               // a file with text, a row for each window of the model's context
  std::string ids;                // a file with one JSON array of ids per line
  int max_seq_len = 2048;
  std::string chat_template = "auto";
  std::string chat_date;  // "2026-01-31"; empty: templates have no day to write
  std::string text_field = "text";
  std::int64_t limit = 0;  // rows; 0: all
  std::int64_t batch_tokens = 4096;
  std::string type = "float32";  // float32 | bfloat16
  int threads = 0;               // 0: as many as there are cores
  std::string details;           // none | rows | tokens; empty: by output and kind of rows
  std::string output = "table";  // table | json
};
int RunScore(const ScoreOptions& options);

struct GenerateOptions {
  std::string model;
  std::string adapter;                // PEFT directory; empty: none
  std::optional<std::string> prompt;  // none: standard input
  std::string prompts;  // JSON lines {"prompt"}, "-": standard input; empty: one prompt
  int batch = 16;       // of prompts, at once
  std::int64_t max_new_tokens = 256;
  double temperature = 0;  // 0: the most likely token
  std::int64_t top_k = 0;  // 0: no bound
  double top_p = 1;
  std::uint64_t seed = 42;
  std::vector<std::string> stops;
  // The prompt is a user's turn; a terminal without a prompt gets a conversation.
  bool chat = false;
  std::string chat_template = "auto";
  std::string system;         // chat: the system turn
  std::string type = "auto";  // auto | float32 | bfloat16
  int threads = 0;            // 0: as many as there are cores
  bool json = false;
};
int RunGenerate(const GenerateOptions& options);

struct TokenizeOptions {
  std::string model;
  std::optional<std::string> text;  // instead of a file
  std::string file;                 // JSON lines {"text"}; empty: standard input
  bool plain = false;               // lines of text instead
  bool special_tokens = false;      // with what the tokenizer puts around a text
  bool pieces = false;              // also the tokens' own spelling
  bool count = false;               // nothing but how many there are
};
int RunTokenize(const TokenizeOptions& options);

struct InspectOptions {
  std::string path;
  bool verify = false;
  bool tensors = false;
  std::string output = "table";  // table | json
};
int RunInspect(const InspectOptions& options);

struct CheckpointsVerbOptions {
  std::string path;  // a directory of checkpoints, or an output directory
  bool verify = false;
  int prune = 0;  // keep so many; 0: all
  bool json = false;
};
// kExitBadInput also when one is damaged.
int RunCheckpoints(const CheckpointsVerbOptions& options);

struct FetchVerbOptions {
  std::string model;     // ORG/NAME or ORG/NAME@REVISION
  std::string revision;  // empty: the name's, else main
  std::vector<std::string> include;
  std::string token_file;
  std::string endpoint;  // empty: HF_ENDPOINT, else the Hub
  std::string cache;     // empty: where huggingface_hub has it
  int parallel = 4;
};
int RunFetch(const FetchVerbOptions& options);

struct ExportStateOptions {
  std::string checkpoint;       // one, a directory of them, or a single-file state
  std::string out;              // file (full) or directory (hf); must not exist
  std::string format = "full";  // full: weights, moments and cursor in one file | hf
  // hf: directory with config.json and the tokenizer; empty: that of the adapter's own model.
  std::string model;
  std::int64_t max_shard_bytes = 5'000'000'000;  // hf: of a file
  bool mxfp4 = false;                            // hf: experts in MXFP4
};
int RunExport(const ExportStateOptions& options);

struct MergeOptions {
  std::string adapter;                           // PEFT directory
  std::string model;                             // what it adapts
  std::string out;                               // directory to write; must not exist
  std::int64_t max_shard_bytes = 5'000'000'000;  // of a file
  bool mxfp4 = false;                            // experts in MXFP4, where they change too
};
int RunMerge(const MergeOptions& options);

// As JSON also what the CUDA plug-in is made of, or why there is none; workers compare it over the
// nodes of a gang.
int RunVersion(bool as_json);

}  // namespace muster
