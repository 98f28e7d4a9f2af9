// migrate: makes a job file of a configuration of another tool.

#include <filesystem>
#include <iostream>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/migrate/migrate.h"
#include "common/base/files.h"
#include "common/job_spec/foreign_config.h"
#include "common/job_spec/job_file.h"

namespace muster::verbs {
namespace {

namespace fs = std::filesystem;

// A file, or else the command itself. A file's name has no blank, or it exists.
Result<JobFile> ReadInput(const std::string& given) {
  std::error_code error;
  if (given != "-" && !fs::exists(given, error) && given.find(' ') != std::string::npos)
    return JobFile{.text = given, .name = "command", .folder = fs::current_path(error).string()};
  return ReadJobFile(given);
}

// The DeepSpeed configuration that another names, as part of the job. It is looked for below the
// current directory and beside the configuration.
Status AddDeepSpeed(const std::string& folder, migrate::Migration* migration) {
  if (migration->deepspeed_file.empty() || !migration->problem.ok()) return OkStatus();
  std::error_code error;
  std::string file = migration->deepspeed_file;
  if (!fs::exists(file, error)) file = (fs::path(folder) / file).string();
  if (!fs::exists(file, error)) {
    migration->findings.push_back(
        {.verdict = migrate::Verdict::kRefused,
         .key = "deepspeed",
         .value = migration->deepspeed_file,
         .reason = "there is no such file; run muster migrate where it is"});
    return OkStatus();
  }
  MUSTER_ASSIGN_OR_RETURN(const ForeignConfig config, ReadForeignConfig(file));
  MUSTER_ASSIGN_OR_RETURN(const MergedJob merged,
                          MergeForeignConfig(migration->yaml, "the job", config));
  const std::size_t job = migration->yaml.find("\nname:");
  migration->yaml = migration->yaml.substr(0, job + 1) + merged.yaml;
  migration->remarks.insert(migration->remarks.end(), merged.report.begin(), merged.report.end());
  return OkStatus();
}

}  // namespace

struct MigrateConfig {
  static constexpr char kName[] = "migrate";
  static constexpr char kSummary[] = "Make a job file of another tool's configuration";

  std::string file;
  std::string out;
  std::string from;
  std::vector<std::string> overrides;
  bool force = false;
  bool quiet = false;

  void AddFlags(Flags& flags) {
    flags
        .Add("FILE", file,
             "A configuration of axolotl, LLaMA-Factory, torchtune, TRL, accelerate, DeepSpeed or "
             "Determined, or a shell command or script with torchrun or trl sft; -: standard input")
        .Required();
    flags.Add("--out FILE", out, "Job file to write [default: standard output]");
    flags.Add("--from TOOL", from, "Whose configuration it is [default: found out by its keys]")
        .OneOf(migrate::Tools());
    flags.Add("--set KEY=VALUE", overrides, "Set a key of the job file; repeatable").Variable("");
    flags.Add("--force", force, "Write the job file although keys are refused");
    flags.Add("--quiet", quiet, "Report what is refused and what to look at, no more");
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const JobFile input, ReadInput(file));
    MUSTER_ASSIGN_OR_RETURN(migrate::Migration migration,
                            migrate::Migrate(input.text, input.name, from, overrides));
    MUSTER_RETURN_IF_ERROR(AddDeepSpeed(input.folder, &migration));
    context.terminal.err << migrate::Report(migration, input.name, quiet);
    if (migration.refused() && !force)
      return InvalidArgument(
          "what is refused would change what is trained, so there is no job file\n  next: change "
          "these keys, or add --force to leave them out");
    if (!migration.problem.ok()) return migration.problem;
    if (out.empty()) {
      context.terminal.out << migration.yaml;
      return kExitSuccess;
    }
    std::error_code error;
    if (fs::exists(out, error)) return AlreadyExists(out + " already exists; choose another file");
    MUSTER_RETURN_IF_ERROR(WriteFileAtomically(out, migration.yaml));
    context.terminal.err << "wrote " << out << ". Next: muster-trainer smoke " << out << "\n";
    return kExitSuccess;
  }
};

template void AddVerb<MigrateConfig>(CommandLine& line);

}  // namespace muster::verbs
