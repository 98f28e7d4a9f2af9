// muster-trainer: one rank of a training job, and the tools around a model's files.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>

#include "common/base/byte_size.h"
#include "common/base/open_files.h"
#include "common/command_line/help_words.h"
#include "common/command_line/version_text.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/distributed/store_server.h"
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
  verb->add_option("--accelerate-config", o.accelerate_config,
                   "A configuration of accelerate or DeepSpeed, for what the job does not say");
  verb->add_option("--set", o.overrides, "Override a key: --set train.seed=7")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void AddTraining(CLI::App& app, Options& options, Action& action) {
  CLI::App* train = app.add_subcommand("train", "Run one rank of a job (environment of torchrun)");
  AddTrainOptions(train, options.train);
  train->add_flag("--smoke", options.smoke, "Try the job out instead, as the verb smoke does");
  train->callback([&] {
    action = [&] {
      return options.smoke ? muster::RunSmoke(options.train) : muster::RunTrain(options.train);
    };
  });

  CLI::App* smoke = app.add_subcommand(
      "smoke", "Try a job out: two steps, a checkpoint, memory and speed; leaves nothing behind");
  AddTrainOptions(smoke, options.train);
  smoke->callback([&] { action = [&] { return muster::RunSmoke(options.train); }; });

  CLI::App* store =
      app.add_subcommand("store", "Serve a TCPStore on the inherited socket MUSTER_LISTEN_FD");
  store->callback([&] { action = [] { return muster::RunStore(std::getenv); }; });
}

void AddPlan(CLI::App& app, Options& options, Action& action) {
  muster::PlanOptions& o = options.plan;
  CLI::App* verb = app.add_subcommand(
      "plan", "Memory, time and cost of a job before it runs; exit 0: it fits, 1: it does not");
  verb->add_option("file", o.file, "Job file with a train block")->required();
  verb->add_option("--accelerate-config", o.accelerate_config,
                   "A configuration of accelerate or DeepSpeed, for what the job does not say");
  verb->add_option("--set", o.overrides, "Override a key: --set train.batch.per_rank=2")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->add_option("--device", o.device,
                   "cpu (this machine), A100-40, A100-80, H100-80, H200, L40S, A10, RTX-4090, "
                   "RTX-3090, or any name with --memory-gb and --peak-tflops");
  verb->add_option("--model", o.model, "Model directory or config.json; needs no weights");
  verb->add_option("--nodes", o.nodes, "Instead of resources.nodes")->check(CLI::Range(1, 4096));
  verb->add_option("--ranks-per-node", o.ranks_per_node, "Instead of resources.ranks_per_node")
      ->check(CLI::Range(1, 64));
  CLI::Option* lora =
      verb->add_option("--lora", o.lora_r, "Train adapters of this width on all linear layers")
          ->check(CLI::Range(1, 4096));
  verb->add_flag("--nf4", o.nf4, "With the frozen weights in 4 bits")->needs(lora);
  verb->add_option("--rows", o.rows, "Of the data, where epochs are counted")
      ->check(CLI::PositiveNumber);
  const auto number = [verb](const char* name, double& value, const char* help) {
    verb->add_option(name, value, help)->check(CLI::PositiveNumber);
  };
  number("--memory-gb", o.memory_gb, "Of a device, 10^9 bytes");
  number("--host-memory-gb", o.host_memory_gb, "Of a node");
  number("--peak-tflops", o.peak_tflops, "Of a device, dense, in the compute type");
  verb->add_option("--achievable", o.achievable, "Share of the peak that training reaches, 0 to 1")
      ->check(CLI::PositiveNumber & CLI::Range(0.0, 1.0));
  number("--link-gb-s", o.link_gb_s, "Between the devices of a node, per direction");
  number("--network-gbit-s", o.network_gbit_s, "Of a node, per direction");
  number("--cost-per-hour", o.cost_per_hour, "Of all devices together");
  verb->add_flag("--standalone", o.standalone, "As torchrun starts it: without snapshots");
  verb->add_option("-o,--output", o.output, "table or json")
      ->check(CLI::IsMember({"table", "json"}));
  verb->callback([&] { action = [&] { return muster::RunPlanVerb(o); }; });
}

void AddInitModel(CLI::App& app, Options& options, Action& action) {
  muster::InitModelOptions& o = options.init_model;
  CLI::App* verb = app.add_subcommand("init-model", "Write a model directory with random weights");
  CLI::Option* preset = verb->add_option("--preset", o.preset, "tiny (3 M) or small (32 M)");
  CLI::Option* config = verb->add_option("--config", o.config, "A config.json to follow");
  preset->excludes(config);
  verb->add_option("--out", o.out, "Directory to write")->required();
  verb->add_option("--seed", o.seed, "Of the random weights")->capture_default_str();
  verb->callback([&] {
    if (o.preset.empty() == o.config.empty()) {
      throw CLI::RequiredError("init-model: one of --preset and --config");
    }
    action = [&] { return muster::RunInitModel(o); };
  });
}

void AddScore(CLI::App& app, Options& options, Action& action) {
  muster::ScoreOptions& o = options.score;
  CLI::App* verb = app.add_subcommand("score", "Loss, perplexity and token accuracy of rows");
  verb->add_option("--model", o.model, "Model directory, or ORG/NAME of the Hub")->required();
  verb->add_option("--adapter", o.adapter, "PEFT directory that is merged into the model");
  CLI::Option_group* rows = verb->add_option_group("rows");
  rows->add_option("--data", o.data, "File or folder that training takes, repeatable")
      ->take_all()
      ->allow_extra_args(false);
  rows->add_option("--text", o.text, "File with text, a row for each window of the context");
  rows->add_option("--ids", o.ids, "File with one JSON array of ids per line");
  rows->require_option(1);
  verb->add_option("--max-seq-len", o.max_seq_len, "Longer rows of --data are cut; rows of --text")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  verb->add_option("--chat-template", o.chat_template, "Of --data, as data.chat_template of a job")
      ->capture_default_str();
  verb->add_option("--text-field", o.text_field, "Of --data, as data.text_field of a job")
      ->capture_default_str();
  verb->add_option("--limit", o.limit, "The first so many rows; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--batch-tokens", o.batch_tokens, "Positions that are computed at once")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  verb->add_option("--dtype", o.type, "To compute in")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  verb->add_option("--threads", o.threads, "Default: as many as there are cores")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--details", o.details, "none, rows or tokens; default: by -o and kind of rows")
      ->check(CLI::IsMember({"none", "rows", "tokens"}));
  verb->add_option("-o,--output", o.output, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  verb->callback([&] { action = [&] { return muster::RunScore(o); }; });
}

void AddSampling(CLI::App* verb, muster::GenerateOptions& o) {
  verb->add_option("--max-new-tokens,--max-tokens", o.max_new_tokens, "At most so many new tokens")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--temperature", o.temperature, "0: always the most likely token")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--top-k", o.top_k, "Draw from the so many most likely tokens; 0: from all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--top-p", o.top_p, "Draw from the fewest tokens that together are so probable")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  verb->add_option("--seed", o.seed, "Of the drawing")->capture_default_str();
  verb->add_option("--stop", o.stops, "End before this text (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
}

void AddGenerate(CLI::App& app, Options& options, Action& action) {
  muster::GenerateOptions& o = options.generate;
  CLI::App* verb = app.add_subcommand("generate", "Go on from a prompt, or hold a conversation");
  verb->add_option("--model", o.model, "Model directory, or ORG/NAME of the Hub")->required();
  verb->add_option("--adapter", o.adapter, "PEFT directory that is merged into the model");
  verb->add_option("--prompt", o.prompt, "Text to go on from; default: standard input");
  AddSampling(verb, o);
  CLI::Option* chat = verb->add_flag("--chat", o.chat,
                                     "The prompt is a user's turn; without --prompt, a terminal "
                                     "gets a conversation");
  verb->add_option("--chat-template", o.chat_template,
                   "auto (the model's own, else chatml), a built-in one, or a .jinja file")
      ->capture_default_str()
      ->needs(chat);
  verb->add_option("--system", o.system, "The system turn")->needs(chat);
  verb->add_option("--dtype", o.type, "To compute in; auto: bfloat16 where the weights are")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}))
      ->capture_default_str();
  verb->add_option("--threads", o.threads, "Default: as many as there are cores")
      ->check(CLI::Range(1, 1024));
  verb->add_flag("--json", o.json, "One object with text, ids, finish_reason and times");
  verb->callback([&] { action = [&] { return muster::RunGenerate(o); }; });
}

void AddTokenize(CLI::App& app, Options& options, Action& action) {
  muster::TokenizeOptions& o = options.tokenize;
  CLI::App* verb = app.add_subcommand("tokenize", "Texts to token ids, and back to text");
  verb->add_option("--model", o.model, "Model directory, or ORG/NAME of the Hub")->required();
  CLI::Option* file =
      verb->add_option("file", o.file, "JSON lines {\"text\"}; default: standard input");
  verb->add_option("--text", o.text, "A text, instead of a file")->excludes(file);
  verb->add_flag("--plain", o.plain, "The file has lines of text instead of JSON");
  verb->add_flag("--special-tokens", o.special_tokens,
                 "With what the tokenizer puts before and after a text");
  verb->add_flag("--pieces", o.pieces, "Also the tokens as the tokenizer spells them");
  verb->add_flag("--count", o.count, "Only how many rows and tokens there are");
  verb->callback([&] { action = [&] { return muster::RunTokenize(o); }; });
}

void AddFiles(CLI::App& app, Options& options, Action& action) {
  muster::InspectOptions& i = options.inspect;
  CLI::App* inspect = app.add_subcommand(
      "inspect", "What a model directory, safetensors file, checkpoint or shard holds");
  inspect->add_option("path", i.path, "File or directory, or ORG/NAME of the Hub")->required();
  inspect->add_flag("--verify", i.verify, "Of a checkpoint: compare every byte with its checksum");
  inspect->add_flag("--tensors", i.tensors, "Of a model: list the tensors");
  inspect->add_option("-o,--output", i.output, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  inspect->callback([&] { action = [&] { return muster::RunInspect(i); }; });

  muster::CheckpointsVerbOptions& c = options.checkpoints;
  CLI::App* checkpoints = app.add_subcommand("checkpoints", "List a run's checkpoints on disk");
  checkpoints->add_option("directory", c.path, "Of the checkpoints, or of the run's output")
      ->required();
  checkpoints->add_flag("--verify", c.verify, "Compare every byte with its checksum");
  checkpoints->add_option("--prune", c.prune, "Remove all committed ones but the newest so many")
      ->check(CLI::Range(1, 1'000'000));
  checkpoints->add_flag("--json", c.json, "As a JSON list");
  checkpoints->callback([&] { action = [&] { return muster::RunCheckpoints(c); }; });

  CLI::App* version = app.add_subcommand("version", "Print the version");
  version->add_flag("--json", options.version_json, "With the versions of the CUDA plug-in");
  version->callback([&] { action = [&] { return muster::RunVersion(options.version_json); }; });
}

void AddFetch(CLI::App& app, Options& options, Action& action) {
  muster::FetchVerbOptions& o = options.fetch;
  CLI::App* verb = app.add_subcommand("fetch", "A model of the Hugging Face Hub into the cache");
  verb->add_option("model", o.model, "ORG/NAME, or ORG/NAME@REVISION")->required();
  verb->add_option("--revision", o.revision, "Branch, tag or commit; default: main");
  verb->add_option("--include", o.include,
                   "Files by pattern (repeatable); default: configuration, tokenizer, safetensors")
      ->take_all()
      ->allow_extra_args(false);
  verb->add_option("--token-file", o.token_file,
                   "File with an access token; default: HF_TOKEN, or what `hf auth login` stored");
  verb->add_option("--endpoint", o.endpoint, "Address of the Hub; default: HF_ENDPOINT");
  verb->add_option("--cache", o.cache, "Default: HF_HUB_CACHE, or where huggingface_hub has it");
  verb->add_option("--parallel", o.parallel, "Files at a time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->callback([&] { action = [&] { return muster::RunFetch(o); }; });
}

void AddExport(CLI::App& app, Options& options, Action& action) {
  muster::ExportStateOptions& o = options.export_state;
  CLI::App* verb = app.add_subcommand("export", "A checkpoint of any number of ranks in one piece");
  verb->add_option("--checkpoint", o.checkpoint, "Checkpoint, or a directory of them: the newest")
      ->required();
  verb->add_option("--out", o.out, "File (full) or directory (hf) to write")->required();
  verb->add_option("--format", o.format,
                   "full: weights, optimizer state and cursor as one safetensors file; hf: a "
                   "Hugging Face model directory, or where the checkpoint holds an adapter, a "
                   "PEFT directory")
      ->check(CLI::IsMember({"full", "hf"}))
      ->capture_default_str();
  verb->add_option("--model", o.model,
                   "hf: directory with config.json and tokenizer files; of an adapter that may be "
                   "left out: the model that the job has trained it over");
  AddByteSize(verb, "--max-shard-size", "hf: of a file of weights, such as 5GB or 500MiB",
              &o.max_shard_bytes);
  verb->callback([&] {
    if (o.format != "hf" && !o.model.empty()) {
      throw CLI::ValidationError("export: --model goes with --format hf");
    }
    action = [&] { return muster::RunExport(o); };
  });
}

void AddMerge(CLI::App& app, Options& options, Action& action) {
  muster::MergeOptions& o = options.merge;
  CLI::App* verb = app.add_subcommand("merge", "An adapter and its model as one model directory");
  verb->add_option("--adapter", o.adapter, "PEFT directory")->required();
  verb->add_option("--model", o.model, "Model that it adapts: directory, or ORG/NAME of the Hub")
      ->required();
  verb->add_option("--out", o.out, "Directory to write")->required();
  AddByteSize(verb, "--max-shard-size", "Of a file of weights, such as 5GB or 500MiB",
              &o.max_shard_bytes);
  verb->callback([&] { action = [&] { return muster::RunMerge(o); }; });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One rank of a training job, and the tools around a model's files.");
  app.name("muster-trainer");
  muster::WriteHelpInWords(app);
  app.set_version_flag("--version", muster::VersionText("muster-trainer"),
                       "Print the version and end");
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
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
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
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(code);
}
