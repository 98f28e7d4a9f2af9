#include <sys/random.h>

#include <cerrno>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/exit_code.h"
#include "cli/job_json.h"
#include "common/base/files.h"
#include "common/job_spec/foreign_config.h"
#include "common/job_spec/parse.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxJobFileBytes = 1 << 20;
constexpr auto kSubmitPatience = std::chrono::seconds(10);

Result<std::string> ReadJobFile(const std::string& file) {
  if (file != "-") {
    auto text = ReadFile(file, kMaxJobFileBytes);
    // Too large is a fault of the file, not of the cluster.
    if (text.status().code() == StatusCode::kResourceExhausted)
      return InvalidArgument(text.status().message());
    return text;
  }
  std::string text(kMaxJobFileBytes + 1, '\0');
  std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::cin.gcount()));
  if (text.size() > kMaxJobFileBytes)
    return InvalidArgument("standard input has more than " + std::to_string(kMaxJobFileBytes) +
                           " bytes");
  return text;
}

Result<std::string> RandomKey() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return ErrnoStatus(errno, "getrandom");
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string key;
  for (const unsigned char byte : bytes) {
    key += kDigits[byte >> 4];
    key += kDigits[byte & 15];
  }
  return key;
}

// "file:12: key: what" without "file:12: ".
std::string WithoutPlace(const std::string& message, const std::string& file) {
  if (!message.starts_with(file + ":")) return message;
  const std::size_t end = message.find(": ", file.size() + 1);
  return end == std::string::npos ? message : message.substr(end + 2);
}

// Overrides change the line numbers. An error that the file has by itself is told with the file's
// own line; one that an override brought names the overrides instead.
Status ExplainOverridden(const Status& overridden, const std::string& original,
                         const std::string& file) {
  const auto plain = ParseJobSpec(original, file);
  const std::string message = WithoutPlace(overridden.message(), file);
  if (!plain.ok() && WithoutPlace(plain.status().message(), file) == message) return plain.status();
  return {overridden.code(), file + " with --set: " + message};
}

// The job with what another launcher's configuration says beside it; what becomes of each of its
// keys goes to `err`.
Result<std::string> AddForeignConfig(std::string yaml, const std::string& file,
                                     const std::string& foreign, std::ostream& err) {
  if (foreign.empty()) return yaml;
  MUSTER_ASSIGN_OR_RETURN(const ForeignConfig config, ReadForeignConfig(foreign));
  MUSTER_ASSIGN_OR_RETURN(MergedJob merged, MergeForeignConfig(yaml, file, config));
  for (const std::string& line : merged.report) err << line << "\n";
  return std::move(merged.yaml);
}

struct ReadySpec {
  JobSpec spec;
  std::string yaml;
};

// The file with every override applied and an absolute workdir, parsed.
Result<ReadySpec> PrepareSpec(const SubmitOptions& options, std::ostream& err) {
  auto text = ReadJobFile(options.file);
  if (!text.ok()) return text.status().WithContext("cannot read the job file");
  const std::string file = options.file == "-" ? "standard input" : options.file;
  std::vector<std::string> overrides = options.overrides;
  if (!options.name.empty()) overrides.push_back("name=" + nlohmann::json(options.name).dump());
  if (options.priority) overrides.push_back("priority=" + std::to_string(*options.priority));
  // Also without overrides, so that a broken file is told with its line before it is rewritten.
  if (overrides.empty() && options.accelerate_config.empty()) {
    const auto plain = ParseJobSpec(*text, file);
    if (!plain.ok()) return plain.status();
  }
  MUSTER_ASSIGN_OR_RETURN(std::string yaml, ApplyOverrides(*text, overrides));
  MUSTER_ASSIGN_OR_RETURN(yaml,
                          AddForeignConfig(std::move(yaml), file, options.accelerate_config, err));
  auto spec = ParseJobSpec(yaml, file);
  if (!spec.ok()) return ExplainOverridden(spec.status(), *text, file);

  // A relative workdir is the file's own folder, unless it was given on the command line.
  bool from_command_line = options.file == "-";
  for (const std::string& override : options.overrides)
    from_command_line = from_command_line || override.starts_with("workdir=");
  std::error_code error;
  const fs::path here = fs::current_path(error);
  const fs::path base = from_command_line ? here : fs::absolute(options.file, error).parent_path();
  spec->workdir = (base / spec->workdir).lexically_normal().string();
  while (spec->workdir.size() > 1 && spec->workdir.back() == '/') spec->workdir.pop_back();
  MUSTER_ASSIGN_OR_RETURN(
      yaml, ApplyOverrides(yaml, {"workdir=" + nlohmann::json(spec->workdir).dump()}));
  return ReadySpec{*std::move(spec), std::move(yaml)};
}

// Only a hint: the worker's own check decides, on the machine where the job will run.
void WarnOfMissingFiles(const JobSpec& spec, std::ostream& err) {
  if (!spec.train) return;
  const fs::path workdir = spec.workdir;
  std::error_code error;
  const fs::path model = workdir / spec.train->model.path;
  if (!fs::exists(model / "config.json", error))
    err << "muster: warning: " << model.lexically_normal().string()
        << " has no config.json on this machine; train.model.path must be a Hugging Face directory "
           "there where the job runs\n";
  for (const std::string& named : spec.train->data.train) {
    const fs::path data = workdir / named;
    if (!fs::exists(data, error))
      err << "muster: warning: " << data.lexically_normal().string()
          << " (train.data.train) does not exist on this machine\n";
  }
}

// The key makes it safe to say it again when the answer was lost.
Result<v1::SubmitResponse> SubmitWithRetries(CommandContext& context,
                                             const v1::SubmitRequest& request) {
  const Deadline deadline = Deadline::After(kSubmitPatience);
  for (;;) {
    auto response = context.client.Submit(request);
    const bool again = !response.ok() && response.status().code() == StatusCode::kUnavailable &&
                       context.client.FindEndpoint().ok();
    if (!again || deadline.Expired()) return response;
    context.client.Disconnect();
    if (context.interrupt().WaitFor(std::chrono::milliseconds(200)))
      return Cancelled("interrupted");
  }
}

CommandResult Follow(CommandContext& context, const std::string& id, SubmitFollow follow) {
  if (follow == SubmitFollow::kWait) return RunWait(context, {.job = id});
  return RunAttach(context, {.job = id});
}

}  // namespace

CommandResult RunSubmit(CommandContext& context, const SubmitOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const ReadySpec ready, PrepareSpec(options, context.terminal.err));
  Terminal& terminal = context.terminal;
  WarnOfMissingFiles(ready.spec, terminal.err);
  v1::SubmitRequest request;
  request.set_spec_yaml(ready.yaml);
  std::string key = options.key;
  if (key.empty()) {
    MUSTER_ASSIGN_OR_RETURN(key, RandomKey());
  }
  request.set_key(key);
  MUSTER_ASSIGN_OR_RETURN(const v1::SubmitResponse response, SubmitWithRetries(context, request));

  const Json json = {
      {"id", response.id()}, {"name", response.name()}, {"state", StateWord(response.state())}};
  // Standard output is one document: with --wait or --attach it is the job as it ended.
  const bool one_document =
      context.output == OutputFormat::kJson || context.output == OutputFormat::kYaml;
  const bool told_later = one_document && options.follow != SubmitFollow::kNone;
  if (!told_later && !PrintStructured(terminal.out, context.output, json, "id")) {
    Table table({"ID", "NAME", "STATE"});
    table.Add({response.id(), response.name(), StateWord(response.state())});
    table.Print(terminal.out, terminal.color);
    terminal.out.flush();
    if (response.existed() && !options.key.empty())
      terminal.err << "an earlier submit with this key made the job\n";
    if (options.follow == SubmitFollow::kNone)
      terminal.err << "next: muster attach " << response.id() << " --dir "
                   << ShellWord(context.dir()) << "\n";
  }
  if (options.follow == SubmitFollow::kNone) return kExitSuccess;
  return Follow(context, response.id(), options.follow);
}

}  // namespace muster
