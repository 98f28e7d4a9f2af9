#include "cli/ready_job.h"

#include <sys/random.h>

#include <cerrno>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/files.h"
#include "common/job_spec/foreign_config.h"
#include "common/job_spec/parse.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxJobFileBytes = 1 << 20;

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

}  // namespace

Result<ReadyJob> PrepareJob(const JobFileOptions& options, std::ostream& err) {
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
  return ReadyJob{*std::move(spec), std::move(yaml)};
}

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

}  // namespace muster
