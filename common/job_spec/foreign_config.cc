#include "common/job_spec/foreign_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>

#include "common/base/files.h"
#include "common/job_spec/foreign_reader.h"
#include "common/job_spec/parse.h"

namespace muster {
namespace {

constexpr std::int64_t kMaxBytes = 1 << 20;

// What the job itself says at a dotted key, as it would be written again; nothing: it does not.
std::optional<std::string> Said(const YAML::Node& job, const std::string& key) {
  YAML::Node node = YAML::Clone(job);
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    if (!node.IsMap()) return std::nullopt;
    const YAML::Node next = node[key.substr(begin, end - begin)];
    if (!next || next.IsNull()) return std::nullopt;
    node.reset(next);
    begin = end + 1;
  }
  YAML::Emitter text;
  text << YAML::Flow << node;
  return std::string(text.c_str());
}

struct Merger {
  const ForeignConfig& config;
  YAML::Node job;
  std::string job_file;
  std::vector<std::string> overrides;
  std::vector<std::string> report;

  void Take(const ForeignSetting& setting);
  void Tell(const ForeignDefault& absent);
};

void Merger::Take(const ForeignSetting& setting) {
  if (setting.key.starts_with("train.") && !job["train"].IsDefined()) {
    report.push_back(config.file + ": " + setting.from + " is for the built-in trainer, " +
                     job_file + " runs a command");
    return;
  }
  std::optional<std::string> said = Said(job, setting.key);
  std::string key = setting.key;
  if (!said && !setting.unless.empty()) {
    said = Said(job, setting.unless);
    if (said) key = setting.unless;
  }
  if (!said) {
    overrides.push_back(setting.key + "=" + setting.value);
    report.push_back(config.file + ": " + setting.from + " -> " + setting.key + ": " +
                     setting.value);
  } else if (key != setting.key || !IsSameValue(*said, setting.value)) {
    report.push_back(config.file + ": " + setting.from + " is not taken, " + job_file + " has " +
                     key + ": " + *said);
  }
}

// Notes what neither file says.
void Merger::Tell(const ForeignDefault& absent) {
  if (!job["train"].IsDefined() || Said(job, absent.job_key)) return;
  if (!absent.unless.empty() && Said(job, absent.unless)) return;
  for (const ForeignSetting& setting : config.settings)
    if (setting.key == absent.job_key) return;
  report.push_back(config.file + ": " + absent.key + " is absent, which means " + absent.means +
                   " to DeepSpeed; here " + absent.job_key + " has the default of jobs");
}

// Each of two files may be right by itself.
Status CheckAgainst(const ForeignConfig& outer, const ForeignConfig& inner) {
  for (const ForeignSetting& setting : inner.settings) {
    for (const ForeignSetting& other : outer.settings) {
      if (setting.key != other.key || IsSameValue(setting.value, other.value)) continue;
      return InvalidArgument(inner.file + ": " + setting.from + ": gives another " + setting.key +
                             " than " + other.from + " of " + outer.file + "; leave one of them");
    }
  }
  return OkStatus();
}

Status CheckRows(const JobSpec& spec, const ForeignConfig& config, const std::string& job_file) {
  if (!config.train_batch_size || !spec.train) return OkStatus();
  const BatchSpec& batch = spec.train->batch;
  const std::int64_t rows = std::int64_t{batch.per_rank} * batch.accumulation * spec.world_size();
  if (rows == *config.train_batch_size) return OkStatus();
  return InvalidArgument(
      config.file + ": train_batch_size: " + std::to_string(*config.train_batch_size) + ": " +
      job_file + " trains on " + std::to_string(rows) + " rows a step (" +
      std::to_string(batch.per_rank) + " per rank, accumulation " +
      std::to_string(batch.accumulation) + ", " + std::to_string(spec.world_size()) + " ranks)");
}

// DeepSpeed derives what is missing of batch, micro-batch and accumulation.
void DeriveAccumulation(const JobSpec& spec, Merger* merger) {
  if (!merger->config.train_batch_size || !spec.train) return;
  if (Said(merger->job, "train.batch.accumulation")) return;
  for (const ForeignSetting& setting : merger->config.settings)
    if (setting.key == "train.batch.accumulation") return;
  const std::int64_t of_one = std::int64_t{spec.train->batch.per_rank} * spec.world_size();
  const std::int64_t rows = *merger->config.train_batch_size;
  if (rows % of_one != 0) return;
  const std::string steps = std::to_string(rows / of_one);
  merger->overrides.push_back("train.batch.accumulation=" + steps);
  merger->report.push_back(merger->config.file + ": train_batch_size: " + std::to_string(rows) +
                           " -> train.batch.accumulation: " + steps);
}

// "file:12: key: what" without "file:12: ".
std::string WithoutPlace(const std::string& message, const std::string& file) {
  const std::size_t end = message.find(": ", file.size());
  return message.starts_with(file + ":") && end != std::string::npos ? message.substr(end + 2)
                                                                     : message;
}

// Lines of the merged text exist in neither file: an error of the job itself is reported with its
// own line.
Result<JobSpec> ParseMerged(const std::string& yaml, std::string_view job_yaml,
                            const std::string& job_file, const std::string& config_file) {
  auto merged = ParseJobSpec(yaml, job_file);
  if (merged.ok()) return merged;
  const std::string message = WithoutPlace(merged.status().message(), job_file);
  const auto plain = ParseJobSpec(job_yaml, job_file);
  if (!plain.ok() && WithoutPlace(plain.status().message(), job_file) == message)
    return plain.status();
  return InvalidArgument(job_file + " with " + config_file + ": " + message);
}

}  // namespace

bool IsAccelerateConfig(std::string_view text) {
  // Accelerate's has one of these at its top, whatever its format is.
  constexpr std::string_view kKeys[] = {"distributed_type", "compute_environment", "fsdp_config"};
  return std::ranges::any_of(
      kKeys, [&](std::string_view key) { return text.find(key) != std::string_view::npos; });
}

Result<ForeignConfig> ExamineForeignConfig(std::string_view text, std::string_view file) {
  return IsAccelerateConfig(text) ? ReadAccelerate(text, file, /*examines=*/true)
                                  : ReadDeepSpeed(text, file, /*examines=*/true);
}

Result<ForeignConfig> ReadForeignConfig(const std::string& file) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxBytes));
  if (!IsAccelerateConfig(text)) return ParseDeepSpeedConfig(text, file);
  MUSTER_ASSIGN_OR_RETURN(ForeignConfig config, ParseAccelerateConfig(text, file));
  if (config.deepspeed_file.empty()) return config;
  const std::string named =
      (std::filesystem::path(file).parent_path() / config.deepspeed_file).string();
  MUSTER_ASSIGN_OR_RETURN(const std::string json, ReadFile(named, kMaxBytes));
  MUSTER_ASSIGN_OR_RETURN(const ForeignConfig inner, ParseDeepSpeedConfig(json, named));
  MUSTER_RETURN_IF_ERROR(CheckAgainst(config, inner));
  config.settings.insert(config.settings.end(), inner.settings.begin(), inner.settings.end());
  config.notes.insert(config.notes.end(), inner.notes.begin(), inner.notes.end());
  config.defaults = inner.defaults;
  config.train_batch_size = inner.train_batch_size;
  return config;
}

Result<MergedJob> MergeForeignConfig(std::string_view job_yaml, std::string_view job_file,
                                     const ForeignConfig& config) {
  Merger merger{.config = config,
                .job = {},
                .job_file = std::string(job_file),
                .overrides = {},
                .report = {}};
  try {
    merger.job = YAML::Load(std::string(job_yaml));
  } catch (const YAML::Exception&) {
    // With the line, and as it is always said.
    const auto refused = ParseJobSpec(job_yaml, job_file);
    return refused.ok() ? InvalidArgument(merger.job_file + ": is no valid YAML")
                        : refused.status();
  }
  for (const ForeignSetting& setting : config.settings) merger.Take(setting);
  const auto parse = [&](const std::string& yaml) {
    return ParseMerged(yaml, job_yaml, merger.job_file, config.file);
  };
  MUSTER_ASSIGN_OR_RETURN(std::string yaml, ApplyOverrides(job_yaml, merger.overrides));
  MUSTER_ASSIGN_OR_RETURN(JobSpec spec, parse(yaml));
  DeriveAccumulation(spec, &merger);
  MUSTER_ASSIGN_OR_RETURN(yaml, ApplyOverrides(job_yaml, merger.overrides));
  MUSTER_ASSIGN_OR_RETURN(spec, parse(yaml));
  MUSTER_RETURN_IF_ERROR(CheckRows(spec, config, merger.job_file));
  for (const ForeignDefault& absent : config.defaults) merger.Tell(absent);
  for (const std::string& note : config.notes) merger.report.push_back(config.file + ": " + note);
  return MergedJob{.yaml = std::move(yaml), .report = std::move(merger.report)};
}

}  // namespace muster
