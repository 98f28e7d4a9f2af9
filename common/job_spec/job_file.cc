#include "common/job_spec/job_file.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <utility>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/wall_time.h"
#include "common/job_spec/job_times.h"
#include "common/job_spec/parse.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxJobFileBytes = 1 << 20;

Result<std::string> ReadStandardInput() {
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

// Overrides change the line numbers. An error that the file has by itself is reported with the
// file's own line; one that an override brought names the overrides instead.
Status ExplainOverridden(const Status& overridden, const JobFile& file) {
  const auto plain = ParseJobSpec(file.text, file.name);
  const std::string message = WithoutPlace(overridden.message(), file.name);
  if (!plain.ok() && WithoutPlace(plain.status().message(), file.name) == message)
    return plain.status();
  return {overridden.code(), file.name + " with --set: " + message};
}

std::string AbsoluteWorkdir(const std::string& base, const std::string& workdir) {
  std::string path = (fs::path(base) / workdir).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::string OverrideText(const std::string& key, const std::string& text) {
  return key + "=" + nlohmann::json(text).dump();
}

std::vector<std::string> ContainerOverrides(const std::string& image,
                                            const std::vector<std::string>& mounts) {
  std::vector<std::string> overrides;
  if (!image.empty()) overrides.push_back(OverrideText("container.image", image));
  if (!mounts.empty()) overrides.push_back("container.mounts=" + nlohmann::json(mounts).dump());
  return overrides;
}

Result<JobFile> ReadJobFile(const std::string& path) {
  std::error_code error;
  if (path == "-") {
    MUSTER_ASSIGN_OR_RETURN(std::string text, ReadStandardInput());
    return JobFile{std::move(text), "standard input", fs::current_path(error).string()};
  }
  auto text = ReadFile(path, kMaxJobFileBytes);
  // Too large is a fault of the file, not of the cluster.
  if (text.status().code() == StatusCode::kResourceExhausted)
    return InvalidArgument(text.status().message());
  if (!text.ok()) return text.status();
  return JobFile{*std::move(text), path, fs::absolute(path, error).parent_path().string()};
}

Result<ResolvedJob> ResolveJob(const JobFile& file, const std::vector<std::string>& overrides,
                               const AmendJob& amend) {
  // Also without overrides, so that a broken file is reported with its line before it is rewritten.
  if (overrides.empty() && !amend) {
    const auto plain = ParseJobSpec(file.text, file.name);
    if (!plain.ok()) return plain.status();
  }
  MUSTER_ASSIGN_OR_RETURN(std::string yaml, ApplyOverrides(file.text, overrides));
  if (amend) {
    MUSTER_ASSIGN_OR_RETURN(yaml, amend(std::move(yaml)));
  }
  auto spec = ParseJobSpec(yaml, file.name);
  if (!spec.ok()) return ExplainOverridden(spec.status(), file);

  const bool overridden =
      std::any_of(overrides.begin(), overrides.end(),
                  [](const std::string& override) { return override.starts_with("workdir="); });
  std::error_code error;
  spec->workdir =
      AbsoluteWorkdir(overridden ? fs::current_path(error).string() : file.folder, spec->workdir);
  std::vector<std::string> resolved = {OverrideText("workdir", spec->workdir)};
  const bool relative_begin = IsRelativeBegin(spec->begin);
  if (!spec->begin.empty() && !ParseRfc3339(spec->begin)) {
    MUSTER_ASSIGN_OR_RETURN(const std::int64_t begin,
                            ResolveBegin(spec->begin, SystemClock().UnixMillis()));
    spec->begin = Rfc3339(begin);
    resolved.push_back(OverrideText("begin", spec->begin));
  }
  MUSTER_ASSIGN_OR_RETURN(yaml, ApplyOverrides(yaml, resolved));
  return ResolvedJob{*std::move(spec), std::move(yaml), relative_begin};
}

}  // namespace muster
