#include "cli/migrate/migrate.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "cli/migrate/fields.h"
#include "common/base/text.h"
#include "common/job_spec/foreign_config.h"
#include "common/job_spec/parse.h"
#include "common/job_spec/torchrun_flags.h"
#include "common/job_spec/torchrun_table.h"

namespace muster::migrate {
namespace {

struct Tool {
  std::string_view name;
  bool has_training_arguments;  // transformers'
  void (*prepare)(Fields& fields);
  void (*compose)(Fields& fields);
};
void Nothing(Fields&) {}
// In the order in which a file is asked whose it is.
constexpr Tool kTools[] = {
    {"determined", false, Nothing, ComposeExperiment},
    {"torchtune", false, PrepareTorchtune, ComposeTraining},
    {"axolotl", false, PrepareAxolotl, ComposeTraining},
    {"llamafactory", true, PrepareLlamaFactory, ComposeTraining},
    {"trl", true, PrepareTrl, ComposeTraining},
};
constexpr std::size_t kMostShown = 80;  // of a value
constexpr int kGpus = 8;                // of a node, where a command asks for all
constexpr int kCpus = 8;
constexpr std::array<std::string_view, 3> kOthers = {"accelerate", "deepspeed", "torchrun"};

// On a terminal, in one line.
std::string Shown(std::string text) {
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  return ValidUtf8(text);
}

std::string Lines(const std::string& text, const std::string& before) {
  std::string lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines += before + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return lines;
}

std::string_view TextOf(const std::string& name) {
  for (const EmbeddedTable& table : EmbeddedTables())
    if (table.name == name + ".txt") return table.text;
  return {};
}

VerdictTable TableOf(const Tool& tool) {
  return VerdictTable(TextOf(std::string(tool.name)), tool.has_training_arguments
                                                          ? TextOf("training_arguments")
                                                          : std::string_view());
}

// The job of the tool, what the caller overrides, and whether that is one.
Status Finish(const std::vector<std::string>& settings, const std::vector<std::string>& overrides,
              const std::string& head, Migration* out) {
  MUSTER_ASSIGN_OR_RETURN(const std::string plain, ApplyOverrides("{}", settings));
  MUSTER_ASSIGN_OR_RETURN(const std::string job, ApplyOverrides(plain, overrides));
  out->yaml = head + job;
  const Status valid = ParseJobSpec(job, "the job").status();
  if (!valid.ok())
    out->problem =
        InvalidArgument(valid.message() + "\n  next: give what is missing by --set KEY=VALUE");
  return OkStatus();
}

// A refusal that an override answers is none any more.
void Answer(const std::vector<std::string>& overrides, Migration* out) {
  std::erase_if(out->findings, [&](const Finding& finding) {
    return finding.verdict == Verdict::kRefused && finding.line == 0 &&
           std::ranges::any_of(overrides, [&](const std::string& override) {
             const std::size_t equals = override.find('=');
             return finding.reason.find("--set " + override.substr(0, equals)) != std::string::npos;
           });
  });
}

Result<Migration> MigrateDocument(Document document, const Tool& tool,
                                  const std::vector<std::string>& overrides) {
  Migration out{.tool = std::string(tool.name)};
  const VerdictTable table = TableOf(tool);
  if (tool.name == "torchtune") Interpolate(&document);
  std::string head = "# Made by muster migrate from " + document.file + " (" + out.tool + ").\n";
  Fields fields(std::move(document), table, &out);
  fields.Apply();
  tool.prepare(fields);
  tool.compose(fields);
  std::vector<RowSource> rows = fields.rows;
  rows.insert(rows.end(), fields.eval_rows.begin(), fields.eval_rows.end());
  if (const std::string recipe = RowRecipe(rows); !recipe.empty()) {
    head += "# The rows, once, with the Python package datasets:\n" + Lines(recipe, "#   ");
    fields.Remark("train.data.train: the Python lines at the top of the job file write the rows");
  }
  Answer(overrides, &out);
  MUSTER_RETURN_IF_ERROR(Finish(fields.settings(), overrides, head, &out));
  return out;
}

// ---- accelerate and DeepSpeed, by the tables that `submit --accelerate-config` has.

// "key: value" and "key: reason".
Finding FindingOf(Verdict verdict, const std::string& text, const std::string& reason) {
  const std::size_t colon = std::min(text.find(": "), text.size());
  const std::string rest = colon < text.size() ? text.substr(colon + 2) : "";
  if (verdict == Verdict::kExplained)
    return {.verdict = verdict, .key = text.substr(0, colon), .value = {}, .reason = rest};
  return {.verdict = verdict, .key = text.substr(0, colon), .value = rest, .reason = reason};
}

Result<Migration> MigrateForeign(std::string_view text, const std::string& file,
                                 const std::vector<std::string>& overrides) {
  Migration out{.tool = IsAccelerateConfig(text) ? "accelerate" : "deepspeed"};
  MUSTER_ASSIGN_OR_RETURN(const ForeignConfig config, ExamineForeignConfig(text, file));
  std::vector<std::string> settings = {"name=migrated", "resources.device=cuda"};
  for (const ForeignDefault& each : config.defaults)
    settings.push_back(each.job_key + "=" + each.value);
  for (const ForeignSetting& each : config.settings) {
    settings.push_back(each.key + "=" + each.value);
    out.findings.push_back(FindingOf(Verdict::kTaken, each.from, each.key + ": " + each.value));
  }
  for (const std::string& note : config.notes)
    out.findings.push_back(FindingOf(Verdict::kExplained, note, ""));
  for (const std::string& refusal : config.refusals) {
    const std::size_t place = std::min(refusal.find(": "), refusal.size() - 2);
    out.findings.push_back({.verdict = Verdict::kRefused,
                            .key = refusal.substr(0, place),
                            .value = {},
                            .reason = refusal.substr(place + 2)});
  }
  if (config.train_batch_size && !out.refused())
    out.remarks.push_back(
        "train.batch: a step of " + std::to_string(*config.train_batch_size) +
        " rows is asked for; batch.per_rank x batch.accumulation x ranks must be that");
  out.deepspeed_file = config.deepspeed_file;
  out.remarks.push_back(
      "the configuration has no model, rows and length of a training: give train.model.path, "
      "train.data.train and train.schedule by --set");
  MUSTER_RETURN_IF_ERROR(Finish(settings, overrides,
                                "# Made by muster migrate from " + file + " (" + out.tool + ").\n",
                                &out));
  return out;
}

// ---- Commands

std::string ProgramOf(const std::string& word) { return word.substr(word.rfind('/') + 1); }

// Where the words of torchrun's own command line begin; 0: it is no such command.
std::size_t TorchrunFlagsAt(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (ProgramOf(words[i]) == "torchrun") return i + 1;
    if (i > 1 && words[i - 1] == "-m" &&
        (words[i] == "torch.distributed.run" || words[i] == "torch.distributed.launch"))
      return i + 1;
  }
  return 0;
}

// The same of TRL's.
std::size_t TrlFlagsAt(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (ProgramOf(words[i]) == "trl" && i + 1 < words.size() && words[i + 1] == "sft") return i + 2;
    if (ProgramOf(words[i]) == "sft.py" && i + 1 < words.size() && words[i + 1].starts_with("--"))
      return i + 1;
  }
  return 0;
}

bool IsTorchrun(const std::vector<std::string>& words) { return TorchrunFlagsAt(words) > 0; }
bool IsTrl(const std::vector<std::string>& words) { return TrlFlagsAt(words) > 0; }

Result<Migration> MigrateTorchrun(const ShellCommand& command, const std::string& file,
                                  const std::vector<std::string>& overrides) {
  Migration out{.tool = "torchrun"};
  const std::size_t at = TorchrunFlagsAt(command.words);
  const std::vector<std::string> arguments(command.words.begin() + static_cast<std::ptrdiff_t>(at),
                                           command.words.end());
  MUSTER_ASSIGN_OR_RETURN(TorchrunFlags flags, ParseTorchrunFlags(arguments, command.environment));
  for (const TorchrunFlag& flag : TorchrunFlagTable()) {
    const std::string name(flag.name);
    const std::string value = flags.at(name);
    if (value == (flag.has_value ? flag.otherwise : "0")) continue;
    const Verdict verdict = flag.treatment == TorchrunTreatment::kTaken   ? Verdict::kTaken
                            : flag.treatment == TorchrunTreatment::kNoted ? Verdict::kExplained
                                                                          : Verdict::kRefused;
    out.findings.push_back(
        {.verdict = verdict, .key = "--" + name, .value = value, .reason = std::string(flag.why)});
    if (verdict == Verdict::kRefused)
      flags.values[name] = flag.has_value ? std::string(flag.otherwise) : "0";
  }
  // Each rank has a GPU, and a node as many as it has ranks.
  const std::string ranks = flags.at("nproc-per-node");
  const auto gpus = NumberIn(ranks);
  if (ranks == "gpu" || ranks == "auto")
    out.remarks.push_back("resources.ranks_per_node: nodes are taken to have 8 GPUs");
  MUSTER_ASSIGN_OR_RETURN(const TorchrunJob job,
                          JobFromTorchrun(flags, {.environment = command.environment,
                                                  .directory = "/",
                                                  .cpus = kCpus,
                                                  .gpus = static_cast<int>(gpus.value_or(kGpus))}));
  for (const std::string& line : command.other_lines)
    out.remarks.push_back("a line that is no part of the job: " + line);
  MUSTER_ASSIGN_OR_RETURN(const std::string yaml, ApplyOverrides(job.yaml, {"workdir=."}));
  MUSTER_ASSIGN_OR_RETURN(const std::string final_yaml, ApplyOverrides(yaml, overrides));
  out.yaml = "# Made by muster migrate from " + file + " (torchrun).\n" + final_yaml;
  out.problem = ParseJobSpec(final_yaml, "the job").status();
  return out;
}

Result<Tool> FindTool(const std::string& wanted, const Document& document) {
  for (const Tool& tool : kTools) {
    const bool is_it = wanted.empty() ? TableOf(tool).Marks(document) : tool.name == wanted;
    if (is_it) return tool;
  }
  return InvalidArgument(document.file + ": no tool has these keys; name it by --from");
}

}  // namespace

std::vector<std::string> Tools() {
  std::vector<std::string> names(kOthers.begin(), kOthers.end());
  for (const Tool& tool : kTools) names.emplace_back(tool.name);
  std::ranges::sort(names);
  return names;
}

Result<Migration> Migrate(std::string_view text, const std::string& file, const std::string& tool,
                          const std::vector<std::string>& overrides) {
  if (ValidUtf8(text) != text) return InvalidArgument(file + ": is no text in UTF-8");
  if (tool == "accelerate" || tool == "deepspeed") return MigrateForeign(text, file, overrides);
  auto document = ReadDocument(text, file);
  const bool maybe_command = !document.ok();
  if ((maybe_command && tool.empty()) || tool == "torchrun") {
    if (const auto command = FindCommand(text, IsTorchrun))
      return MigrateTorchrun(*command, file, overrides);
    if (tool == "torchrun") return InvalidArgument(file + ": has no command with torchrun");
  }
  if (const auto command = maybe_command ? FindCommand(text, IsTrl) : std::nullopt) {
    const auto at = static_cast<std::ptrdiff_t>(TrlFlagsAt(command->words));
    MUSTER_ASSIGN_OR_RETURN(Document flags,
                            ReadFlags({command->words.begin() + at, command->words.end()}, file));
    return MigrateDocument(std::move(flags), *std::ranges::find(kTools, "trl", &Tool::name),
                           overrides);
  }
  if (!document.ok()) return document.status();
  constexpr std::string_view kForeign[] = {"distributed_type", "compute_environment",
                                           "zero_optimization", "train_micro_batch_size_per_gpu",
                                           "train_batch_size"};
  const bool foreign =
      std::ranges::any_of(kForeign, [&](std::string_view key) { return document->Has(key); });
  if (tool.empty() && foreign) return MigrateForeign(text, file, overrides);
  MUSTER_ASSIGN_OR_RETURN(const Tool found, FindTool(tool, *document));
  return MigrateDocument(*std::move(document), found, overrides);
}

Result<VerdictTable> TableOfTool(const std::string& name) {
  const auto tool = std::ranges::find(kTools, name, &Tool::name);
  if (tool == std::end(kTools)) return NotFound(name + " has no table");
  return TableOf(*tool);
}

std::string Report(const Migration& migration, const std::string& file, bool only_refused) {
  std::string report;
  const auto add = [&](Verdict verdict, const char* word) {
    for (const Finding& each : migration.findings) {
      if (each.verdict != verdict) continue;
      report +=
          std::string(word) + (each.line > 0 ? file + ":" + std::to_string(each.line) + ": " : "") +
          each.key + (each.value.empty() ? "" : ": " + Shown(each.value)) +
          (verdict == Verdict::kTaken ? " -> " + Shown(each.reason) : ": " + each.reason) + "\n";
    }
  };
  if (!only_refused) add(Verdict::kTaken, "taken      ");
  if (!only_refused) add(Verdict::kExplained, "explained  ");
  for (const std::string& remark : migration.remarks) report += "look at    " + remark + "\n";
  add(Verdict::kRefused, "refused    ");
  return report;
}

}  // namespace muster::migrate
