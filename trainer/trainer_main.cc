// What muster-trainer does: one rank of a training job, and the tools around a model's files.
// main.cc calls it.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>

#include "common/base/byte_size.h"
#include "common/base/open_files.h"
#include "common/command_line/finite_numbers.h"
#include "common/command_line/help_words.h"
#include "common/command_line/version_text.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/comm/rendezvous/store_server.h"
#include "trainer/verbs/verbs.h"

namespace {

using muster::kExitFailure;
using muster::kExitOk;
using muster::kExitUsage;

// What the command line asks for, called once parsing is over.
using Action = std::function<int()>;

struct Options {
  muster::TrainOptions train;
  bool smoke = false;  // of train
  muster::PlanOptions plan;
  muster::InitModelOptions init_model;
  muster::ScoreOptions score;
  muster::GenerateOptions generate;
  muster::TokenizeOptions tokenize;
  muster::InspectOptions inspect;
  muster::ExportStateOptions export_state;
  muster::FetchVerbOptions fetch;
  muster::CheckpointsVerbOptions checkpoints;
  muster::MergeOptions merge;
  bool version_json = false;
};

void AddByteSize(CLI::App* verb, const std::string& name, const std::string& help,
                 std::int64_t* out) {
  const auto read = [name, out](const std::string& text) {
    const std::optional<std::int64_t> bytes = muster::ParseByteSize(text);
    if (!bytes)
      throw CLI::ValidationError(name, muster::kByteSizeExpected + (" expected: " + text));
    *out = *bytes;
  };
  verb->add_option_function<std::string>(name, read, help)
      ->default_str(muster::FormatByteSize(*out));
}

void AddTrainOptions(CLI::App* verb, muster::TrainOptions& o) {
  verb->add_option("file", o.file, "Job file with a train block")->required();
  verb->add_option(
      "--accelerate-config", o.accelerate_config,
      "Configuration of Accelerate or DeepSpeed, for keys that the job file leaves out");
  verb->add_option("--set", o.overrides, "Override a key, such as train.seed=7")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void AddTraining(CLI::App& app, Options& options, Action& action) {
  CLI::App* train =
      app.add_subcommand("train", "Run one rank of a job in the environment of torchrun");
  AddTrainOptions(train, options.train);
  train->add_flag("--smoke", options.smoke, "Test the job instead, as the verb smoke does");
  train->callback([&] {
    action = [&] {
      return options.smoke ? muster::RunSmoke(options.train) : muster::RunTrain(options.train);
    };
  });

  CLI::App* smoke = app.add_subcommand(
      "smoke", "Test a job: two steps, a checkpoint, memory and speed; leaves no files");
  AddTrainOptions(smoke, options.train);
  smoke->callback([&] { action = [&] { return muster::RunSmoke(options.train); }; });

  CLI::App* store =
      app.add_subcommand("store", "Serve a TCPStore on the inherited socket MUSTER_LISTEN_FD");
  store->callback([&] { action = [] { return muster::RunStore(std::getenv); }; });
}

void AddPlan(CLI::App& app, Options& options, Action& action) {
  muster::PlanOptions& o = options.plan;
  CLI::App* verb = app.add_subcommand(
      "plan", "Estimate memory, time and cost of a job; exit code 1 if it does not fit");
  verb->add_option("file", o.file, "Job file with a train block")->required();
  verb->add_option(
      "--accelerate-config", o.accelerate_config,
      "Configuration of Accelerate or DeepSpeed, for keys that the job file leaves out");
  verb->add_option("--set", o.overrides, "Override a key, such as train.batch.per_rank=2")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->add_option("--device", o.device,
                   "cpu (this machine), A100-40, A100-80, H100-80, H200, L40S, A10, RTX-4090, "
                   "RTX-3090, or any name with --memory-gb and --peak-tflops");
  verb->add_option("--model", o.model, "Model directory or config.json; weights are not needed");
  verb->add_option("--nodes", o.nodes, "Number of nodes [default: resources.nodes]")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--ranks-per-node", o.ranks_per_node,
                   "Ranks per node [default: resources.ranks_per_node]")
      ->check(CLI::Range(1, 64));
  CLI::Option* lora =
      verb->add_option("--lora", o.lora_r, "Train adapters of this width on all linear layers")
          ->check(CLI::Range(1, 4096));
  verb->add_flag("--nf4", o.nf4, "Keep the frozen weights in 4 bits")->needs(lora);
  verb->add_option("--rows", o.rows, "Rows of the data, for jobs that count epochs")
      ->check(CLI::PositiveNumber);
  const auto number = [verb](const char* name, double& value, const char* help) {
    verb->add_option(name, value, help)->check(CLI::PositiveNumber);
  };
  number("--memory-gb", o.memory_gb, "Memory of a device, in 10^9 bytes");
  number("--host-memory-gb", o.host_memory_gb, "Host memory of a node, in 10^9 bytes");
  number("--peak-tflops", o.peak_tflops, "Peak TFLOPS of a device, dense, in the compute type");
  verb->add_option("--achievable", o.achievable, "Share of the peak that training reaches, 0 to 1")
      ->check(CLI::PositiveNumber & CLI::Range(0.0, 1.0));
  number("--link-gb-s", o.link_gb_s, "Bandwidth between the devices of a node, per direction");
  number("--network-gbit-s", o.network_gbit_s, "Network bandwidth of a node, per direction");
  number("--cost-per-hour", o.cost_per_hour, "Cost of all devices together");
  verb->add_flag("--standalone", o.standalone, "Plan for a start by torchrun, without snapshots");
  verb->add_option("-o,--output", o.output, "Output format: table or json")
      ->check(CLI::IsMember({"table", "json"}));
  verb->callback([&] { action = [&] { return muster::RunPlanVerb(o); }; });
}

// What was printed may not have reached the disk.
bool CouldWriteOutput() {
  std::cout.flush();
  return std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
}

void AddInitModel(CLI::App& app, Options& options, Action& action) {
  muster::InitModelOptions& o = options.init_model;
  CLI::App* verb = app.add_subcommand("init-model", "Write a model directory with random weights");
  CLI::Option* preset = verb->add_option("--preset", o.preset, "tiny (3 M) or small (32 M)");
  CLI::Option* config = verb->add_option("--config", o.config, "A config.json to follow");
  preset->excludes(config);
  verb->add_option("--out", o.out, "Directory to write")->required();
  verb->add_option("--seed", o.seed, "Seed of the random weights")->capture_default_str();
  verb->callback([&] {
    if (o.preset.empty() == o.config.empty()) {
      throw CLI::RequiredError("init-model: one of --preset and --config");
    }
    action = [&] { return muster::RunInitModel(o); };
  });
}

void AddScore(CLI::App& app, Options& options, Action& action) {
  muster::ScoreOptions& o = options.score;
  CLI::App* verb =
      app.add_subcommand("score", "Compute loss, perplexity and token accuracy of rows");
  verb->add_option("--model", o.model, "Model directory, or ORG/NAME of the Hub")->required();
  verb->add_option("--adapter", o.adapter, "PEFT directory to merge into the model");
  CLI::Option_group* rows = verb->add_option_group("rows");
  rows->add_option("--data", o.data, "File or directory in a format of training; repeatable")
      ->take_all()
      ->allow_extra_args(false);
  rows->add_option("--text", o.text, "Text file; each window of the context is a row");
  rows->add_option("--ids", o.ids, "File with one JSON array of ids per line");
  rows->require_option(1);
  verb->add_option("--max-seq-len", o.max_seq_len,
                   "Maximum tokens per row of --data; tokens per row of --text")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  verb->add_option("--chat-template", o.chat_template,
                   "Chat template of --data, as data.chat_template of a job")
      ->capture_default_str();
  verb->add_option("--chat-date", o.chat_date,
                   "Day that the chat template of --data writes, such as 2026-01-31");
  verb->add_option("--text-field", o.text_field,
                   "Text field of --data, as data.text_field of a job")
      ->capture_default_str();
  verb->add_option("--limit", o.limit, "Only the first N rows; 0 for all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--batch-tokens", o.batch_tokens, "Positions per forward pass")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  verb->add_option("--dtype", o.type, "Compute type")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  verb->add_option("--threads", o.threads, "Number of threads [default: one per core]")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--details", o.details,
                   "none, rows, or tokens [default: depends on -o and the kind of rows]")
      ->check(CLI::IsMember({"none", "rows", "tokens"}));
  verb->add_option("-o,--output", o.output, "Output format: table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  verb->callback([&] { action = [&] { return muster::RunScore(o); }; });
}

void AddSampling(CLI::App* verb, muster::GenerateOptions& o) {
  verb->add_option("--max-new-tokens,--max-tokens", o.max_new_tokens,
                   "Maximum number of new tokens")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--temperature", o.temperature,
                   "Sampling temperature; 0 selects the most likely token")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  verb->add_option("--top-k", o.top_k, "Sample from the N most likely tokens; 0 for all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--top-p", o.top_p, "Sample from the fewest tokens with this total probability")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  verb->add_option("--seed", o.seed, "Seed of the sampling")->capture_default_str();
  verb->add_option("--stop", o.stops, "Stop before this text; repeatable")
      ->take_all()
      ->allow_extra_args(false);
}

void AddGenerate(CLI::App& app, Options& options, Action& action) {
  muster::GenerateOptions& o = options.generate;
  CLI::App* verb = app.add_subcommand("generate", "Continue a prompt, or hold a conversation");
  verb->add_option("--model", o.model, "Model directory, or ORG/NAME of the Hub")->required();
  verb->add_option("--adapter", o.adapter, "PEFT directory to merge into the model");
  CLI::Option* prompt = verb->add_option("--prompt", o.prompt, "Prompt [default: standard input]");
  CLI::Option* prompts =
      verb->add_option("--prompts", o.prompts,
                       "File with JSON lines {\"prompt\"}, or - for standard input; prints an "
                       "object for each, as --json does")
          ->excludes(prompt);
  verb->add_option("--batch", o.batch, "Prompts to continue at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->needs(prompts);
  AddSampling(verb, o);
  CLI::Option* chat = verb->add_flag("--chat", o.chat,
                                     "Treat the prompt as a user's turn; without --prompt, start a "
                                     "conversation on a terminal");
  verb->add_option("--chat-template", o.chat_template,
                   "auto (the model's own, else chatml), a built-in one, or a .jinja file")
      ->capture_default_str()
      ->needs(chat);
  verb->add_option("--system", o.system, "System turn")->needs(chat);
  verb->add_option("--dtype", o.type, "Compute type; auto selects bfloat16 if the weights are")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}))
      ->capture_default_str();
  verb->add_option("--threads", o.threads, "Number of threads [default: one per core]")
      ->check(CLI::Range(1, 1024));
  verb->add_flag("--json", o.json, "Print one object with text, ids, finish_reason and times");
  verb->callback([&] { action = [&] { return muster::RunGenerate(o); }; });
}

void AddTokenize(CLI::App& app, Options& options, Action& action) {
  muster::TokenizeOptions& o = options.tokenize;
  CLI::App* verb = app.add_subcommand("tokenize", "Convert text to token IDs and back");
  verb->add_option("--model", o.model, "Model directory, or ORG/NAME of the Hub")->required();
  CLI::Option* file =
      verb->add_option("file", o.file, "File with JSON lines {\"text\"} [default: standard input]");
  verb->add_option("--text", o.text, "Text, instead of a file")->excludes(file);
  verb->add_flag("--plain", o.plain, "The file has lines of text instead of JSON");
  verb->add_flag("--special-tokens", o.special_tokens,
                 "Add the tokens that the tokenizer puts before and after a text");
  verb->add_flag("--pieces", o.pieces, "Include the tokens as the tokenizer spells them");
  verb->add_flag("--count", o.count, "Print only the number of rows and tokens");
  verb->callback([&] { action = [&] { return muster::RunTokenize(o); }; });
}

void AddFiles(CLI::App& app, Options& options, Action& action) {
  muster::InspectOptions& i = options.inspect;
  CLI::App* inspect = app.add_subcommand(
      "inspect", "Show the contents of a model directory, safetensors file, checkpoint or shard");
  inspect->add_option("path", i.path, "File or directory, or ORG/NAME of the Hub")->required();
  inspect->add_flag("--verify", i.verify, "Verify the checksums of a checkpoint");
  inspect->add_flag("--tensors", i.tensors, "List the tensors of a model");
  inspect->add_option("-o,--output", i.output, "Output format: table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  inspect->callback([&] { action = [&] { return muster::RunInspect(i); }; });

  muster::CheckpointsVerbOptions& c = options.checkpoints;
  CLI::App* checkpoints = app.add_subcommand("checkpoints", "List a run's checkpoints on disk");
  checkpoints
      ->add_option("directory", c.path, "Directory of the checkpoints, or of the job's output")
      ->required();
  checkpoints->add_flag("--verify", c.verify, "Verify the checksums");
  checkpoints
      ->add_option("--prune", c.prune, "Remove all committed checkpoints except the newest N")
      ->check(CLI::Range(1, 1'000'000));
  checkpoints->add_flag("--json", c.json, "Print a JSON list");
  checkpoints->callback([&] { action = [&] { return muster::RunCheckpoints(c); }; });

  CLI::App* version = app.add_subcommand("version", "Print the version");
  version->add_flag("--json", options.version_json,
                    "Print JSON, with the versions of the CUDA plug-in");
  version->callback([&] { action = [&] { return muster::RunVersion(options.version_json); }; });
}

void AddFetch(CLI::App& app, Options& options, Action& action) {
  muster::FetchVerbOptions& o = options.fetch;
  CLI::App* verb =
      app.add_subcommand("fetch", "Download a model of the Hugging Face Hub into the cache");
  verb->add_option("model", o.model, "ORG/NAME, or ORG/NAME@REVISION")->required();
  verb->add_option("--revision", o.revision, "Branch, tag or commit [default: main]");
  verb->add_option("--include", o.include,
                   "Pattern of files; repeatable [default: configuration, tokenizer, safetensors]")
      ->take_all()
      ->allow_extra_args(false);
  verb->add_option(
      "--token-file", o.token_file,
      "File with an access token [default: HF_TOKEN, or the token of `hf auth login`]");
  verb->add_option("--endpoint", o.endpoint, "Address of the Hub [default: HF_ENDPOINT]");
  verb->add_option("--cache", o.cache,
                   "Cache directory [default: HF_HUB_CACHE, or that of huggingface_hub]");
  verb->add_option("--parallel", o.parallel, "Number of parallel downloads")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->callback([&] { action = [&] { return muster::RunFetch(o); }; });
}

void AddExport(CLI::App& app, Options& options, Action& action) {
  muster::ExportStateOptions& o = options.export_state;
  CLI::App* verb =
      app.add_subcommand("export", "Export a checkpoint of any number of ranks in one piece");
  verb->add_option("--checkpoint", o.checkpoint,
                   "Checkpoint, or a directory of checkpoints for the newest")
      ->required();
  verb->add_option("--out", o.out, "File (full) or directory (hf) to write")->required();
  verb->add_option("--format", o.format,
                   "full: weights, optimizer state and cursor as one safetensors file; hf: a "
                   "Hugging Face model directory, or where the checkpoint holds an adapter, a "
                   "PEFT directory")
      ->check(CLI::IsMember({"full", "hf"}))
      ->capture_default_str();
  verb->add_option(
      "--model", o.model,
      "hf: directory with config.json and tokenizer files [default for an adapter: the "
      "model that the job trained it on]");
  AddByteSize(verb, "--max-shard-size", "hf: maximum size of a weights file, such as 5GB or 500MiB",
              &o.max_shard_bytes);
  verb->add_flag("--mxfp4", o.mxfp4,
                 "hf: write the experts of a gpt-oss in MXFP4; print the error");
  verb->callback([&] {
    if (o.format != "hf" && (!o.model.empty() || o.mxfp4)) {
      throw CLI::ValidationError("export: --model and --mxfp4 go with --format hf");
    }
    action = [&] { return muster::RunExport(o); };
  });
}

void AddMerge(CLI::App& app, Options& options, Action& action) {
  muster::MergeOptions& o = options.merge;
  CLI::App* verb =
      app.add_subcommand("merge", "Merge an adapter into its model; write one model directory");
  verb->add_option("--adapter", o.adapter, "PEFT directory")->required();
  verb->add_option("--model", o.model, "Base model: directory, or ORG/NAME of the Hub")->required();
  verb->add_option("--out", o.out, "Directory to write")->required();
  AddByteSize(verb, "--max-shard-size", "Maximum size of a weights file, such as 5GB or 500MiB",
              &o.max_shard_bytes);
  verb->add_flag("--mxfp4", o.mxfp4,
                 "Write experts of a gpt-oss that the adapter changes in MXFP4 again; print the "
                 "error");
  verb->callback([&] { action = [&] { return muster::RunMerge(o); }; });
}

}  // namespace

extern "C" int MusterTrainerMain(int argc, char** argv) {
  CLI::App app("Run one rank of a training job, and work with model files.");
  app.name("muster-trainer");
  muster::WriteHelpInWords(app);
  app.set_version_flag("--version", muster::VersionText("muster-trainer"),
                       "Print the version and exit");
  app.require_subcommand(1);
  Options options;
  Action action;
  AddTraining(app, options, action);
  AddPlan(app, options, action);
  AddInitModel(app, options, action);
  AddScore(app, options, action);
  AddGenerate(app, options, action);
  AddTokenize(app, options, action);
  AddFiles(app, options, action);
  AddExport(app, options, action);
  AddFetch(app, options, action);
  AddMerge(app, options, action);
  try {
    app.parse(argc, argv);
    muster::CheckNumbersAreFinite(app);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return kExitUsage;
    return CouldWriteOutput() ? kExitOk : kExitFailure;
  }
  muster::RaiseOpenFilesLimit();
  int code = kExitFailure;
  try {
    code = action();
  } catch (const std::exception& error) {
    // The one boundary for exceptions of Torch and of the standard library.
    std::fprintf(stderr, "muster-trainer: %s\n", error.what());
  }
  // Without the destructors of statics: LibTorch takes every operator out of its registry again,
  // which costs as much as a training step.
  // What a rank prints is its log: a disk that is full must not fail a training.
  const bool is_rank = app.got_subcommand("train") || app.got_subcommand("store");
  const bool written = CouldWriteOutput() || is_rank;
  if (!written) std::fputs("muster-trainer: could not write the output\n", stderr);
  std::fflush(nullptr);
  ::_exit(code == kExitOk && !written ? kExitFailure : code);
}
