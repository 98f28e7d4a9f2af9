#include "cli/client/ready_job.h"

#include <sys/random.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "common/base/hub_id.h"
#include "common/job_spec/foreign_config.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Merges another launcher's configuration into the job; `err` gets a line for each of its keys.
Result<std::string> AddForeignConfig(std::string yaml, const std::string& file,
                                     const std::string& foreign, std::ostream& err) {
  MUSTER_ASSIGN_OR_RETURN(const ForeignConfig config, ReadForeignConfig(foreign));
  MUSTER_ASSIGN_OR_RETURN(MergedJob merged, MergeForeignConfig(yaml, file, config));
  for (const std::string& line : merged.report) err << line << "\n";
  return std::move(merged.yaml);
}

}  // namespace

Result<ReadyJob> PrepareJob(const JobFileOptions& options, std::ostream& err) {
  auto file = ReadJobFile(options.file);
  if (!file.ok()) return file.status().WithContext("cannot read the job file");
  std::vector<std::string> overrides = options.overrides;
  const std::pair<const char*, const std::string&> texts[] = {{"name", options.name},
                                                              {"queue", options.queue},
                                                              {"class", options.priority_class},
                                                              {"begin", options.begin}};
  for (const auto& [key, text] : texts)
    if (!text.empty()) overrides.push_back(OverrideText(key, text));
  for (std::string& one : ContainerOverrides(options.container, options.mounts))
    overrides.push_back(std::move(one));
  if (options.hold) overrides.push_back("hold=true");
  if (options.priority) overrides.push_back("priority=" + std::to_string(*options.priority));
  if (options.accelerate_config.empty()) return ResolveJob(*file, overrides);
  return ResolveJob(*file, overrides, [&](std::string yaml) {
    return AddForeignConfig(std::move(yaml), file->name, options.accelerate_config, err);
  });
}

void WarnOfMissingFiles(const JobSpec& spec, std::ostream& err) {
  if (!spec.train || !spec.container.image.empty()) return;
  const fs::path workdir = spec.workdir;
  std::error_code error;
  const fs::path model = workdir / spec.train->model.path;
  // As in the trainer, a directory comes first, then a name of the Hub, which may be in the cache
  // of the nodes only.
  const bool by_name = !fs::exists(model, error) && ParseHubId(spec.train->model.path);
  if (!by_name && !fs::exists(model / "config.json", error))
    err << "muster: warning: " << model.lexically_normal().string()
        << " has no config.json on this machine; train.model.path must be a Hugging Face directory "
           "on the nodes that run the job\n";
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
