#include "worker/agent/container.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include "common/base/files.h"
#include "common/base/hub_id.h"
#include "common/base/json.h"
#include "common/base/replace_file.h"
#include "common/process/run_child.h"
#include "worker/process/container_entry.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

// Within the coordinator's timeout for a preparation, together.
constexpr Duration kPodmanLimit = std::chrono::seconds(15);
constexpr Duration kEntryLimit = std::chrono::seconds(10);
constexpr std::size_t kMaxPodmanBytes = 4 << 20;
constexpr char kScratch[] = "/root";
// Where the libraries of the node's GPU driver lie, and where ranks find them.
constexpr std::array<const char*, 5> kDriverDirectories = {
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
    "/usr/local/nvidia/lib64", "/usr/lib"};
constexpr char kDriverTarget[] = "/run/muster/driver";

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> entries;
  for (char** entry = ::environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

bool IsBelow(const std::string& path, const std::string& directory) {
  return path == directory || path.starts_with(directory == "/" ? directory : directory + "/");
}

Result<ContainerImage> FindUnpackedRoot(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    return ContainerImage{.layers = {fs::canonical(path, error).string()}, .environment = {}};
  if (fs::exists(path, error))
    return FailedPrecondition("container.image: " + path +
                              " is no directory; an archive is loaded by `podman load --input " +
                              path + "` on each node and then named by its image");
  return NotFound("container.image: there is no directory " + path + " on this node");
}

Result<std::string> Ask(RunChildOptions options, const std::string& what) {
  MUSTER_ASSIGN_OR_RETURN(const ChildOutcome outcome, RunChild(options));
  if (outcome.ok()) return outcome.output;
  if (outcome.timed_out) return DeadlineExceeded(what + ": " + outcome.Describe());
  const std::string& said = outcome.errors.empty() ? outcome.output : outcome.errors;
  std::string why = said.empty() ? outcome.Describe() : said;
  while (!why.empty() && why.back() == '\n') why.pop_back();
  return FailedPrecondition(what + why.substr(why.starts_with("muster: ") ? 8 : 0));
}

// The trainer with all that it loads, as the dynamic linker finds it on the node: so it runs in an
// image with another C library, or none.
Result<std::vector<std::string>> TrainerFiles(const LaunchContext& context, bool on_gpus) {
  std::string opened = "libmuster_trainer.so";
  const fs::path folder = fs::path(context.trainer_path).parent_path();
  std::error_code error;
  for (const fs::path& plugin :
       {folder / "libmuster_cuda.so", folder.parent_path() / "lib/libmuster_cuda.so"})
    if (on_gpus && fs::exists(plugin, error)) opened += ":" + plugin.string();
  SpawnOptions spawn{.argv = {context.trainer_path}, .environment = OwnEnvironment()};
  spawn.environment.insert(spawn.environment.end(),
                           {"LD_TRACE_LOADED_OBJECTS=1", "LD_PRELOAD=" + opened});
  MUSTER_ASSIGN_OR_RETURN(
      const std::string text,
      Ask({.spawn = spawn, .max_output = 1 << 20, .errors_apart = true, .limit = kEntryLimit},
          "list the libraries of " + context.trainer_path + ": "));
  std::vector<std::string> files = ParseLoadedLibraries(text);
  files.insert(files.end(), {context.trainer_path, "/etc/ld.so.cache"});
  return files;
}

std::vector<std::string> DriverFiles() {
  std::vector<std::string> files;
  std::error_code error;
  for (const char* directory : kDriverDirectories) {
    if (!fs::exists(std::string(directory) + "/libcuda.so.1", error)) continue;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      const std::string name = entry.path().filename().string();
      const bool of_driver = name.starts_with("libcuda.so") || name.starts_with("libnvidia-") ||
                             name.starts_with("libnvcuvid.so");
      if (of_driver) files.push_back(entry.path().string());
    }
    break;
  }
  return files;
}

// Where the trainer keeps tokens, if that is beside an output directory out of the working one.
std::string TokenCache(const JobSpec& spec, const Prepare& prepare) {
  if (!spec.train || !spec.train->data.cache.empty()) return "";
  if (IsBelow(prepare.output_dir, spec.workdir)) return "";
  return fs::path(prepare.output_dir).parent_path().string() + "/.muster-cache";
}

Result<ContainerRoot> Describe(const LaunchContext& context, const JobSpec& spec,
                               const Prepare& prepare, const std::string& job_dir) {
  std::string search_path = "/usr/local/bin:/usr/bin:/bin";
  if (const auto it = context.passed_through.find("PATH"); it != context.passed_through.end())
    search_path = it->second;
  const auto podman = FindProgram("podman", search_path, "/");
  MUSTER_ASSIGN_OR_RETURN(ContainerImage image,
                          FindContainerImage(spec.container.image, podman.ok() ? *podman : ""));
  const bool on_gpus = spec.resources.device == "cuda";
  std::vector<std::string> programs;
  if (spec.train) {
    MUSTER_ASSIGN_OR_RETURN(programs, TrainerFiles(context, on_gpus));
  }
  if (const std::string cache = TokenCache(spec, prepare); !cache.empty())
    MUSTER_RETURN_IF_ERROR(MakeDirectories(cache));
  ContainerRoot root{.layers = std::move(image.layers),
                     .mounts = ContainerMounts(spec, prepare, job_dir, programs),
                     .directories = {"/tmp"},
                     .environment = std::move(image.environment),
                     .library_path = "",
                     .working_directory = spec.workdir,
                     .scratch = job_dir + kScratch};
  for (const auto* variables : {&spec.env, &context.passed_through}) {
    const auto home = variables->find("HOME");
    if (home == variables->end() || !home->second.starts_with('/')) continue;
    root.directories.push_back(home->second);
    break;
  }
  if (!on_gpus) return root;
  root.library_path = kDriverTarget;
  for (const std::string& file : DriverFiles())
    root.mounts.push_back({.source = file,
                           .target = kDriverTarget + ("/" + fs::path(file).filename().string()),
                           .read_only = true});
  return root;
}

// The program first, then what else must be there.
std::vector<std::string> NeededInside(const LaunchContext& context, const JobSpec& spec) {
  if (!spec.train) return {spec.command.at(0)};
  const std::string& model = spec.train->model.path;
  if (ParseHubId(model)) return {context.trainer_path};  // perhaps of the Hub's cache
  return {context.trainer_path, model.starts_with('/') ? model : spec.workdir + "/" + model};
}

}  // namespace

Result<ContainerImage> FindContainerImage(const std::string& image, const std::string& podman) {
  if (image.starts_with('/')) return FindUnpackedRoot(image);
  if (podman.empty())
    return NotFound("container.image: this node has no podman to know '" + image +
                    "' by; install it, or name a directory into which the image was unpacked");
  auto text =
      Ask({.spawn = {.argv = {podman, "image", "inspect", image}, .environment = OwnEnvironment()},
           .max_output = kMaxPodmanBytes,
           .errors_apart = true,
           .limit = kPodmanLimit},
          "podman: ");
  if (text.status().code() == StatusCode::kDeadlineExceeded)
    return text.status().WithContext("container.image");
  if (!text.ok())
    return NotFound("container.image: podman has no image '" + image +
                    "' for the user of this node's worker (" + text.status().message() +
                    "); run `podman pull " + image + "` there as that user");
  return ParsePodmanImage(*text);
}

Result<ContainerImage> ParsePodmanImage(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text).at(0);
    const nlohmann::json& driver = json.at("GraphDriver");
    if (driver.at("Name") != "overlay")
      return FailedPrecondition("container.image: podman stores it by " +
                                driver.at("Name").get<std::string>() +
                                ", without layers that can be mounted; set the driver overlay in "
                                "storage.conf, or unpack the image into a directory");
    ContainerImage image{.layers = {driver.at("Data").at("UpperDir")}, .environment = {}};
    std::istringstream lower(driver.at("Data").value("LowerDir", ""));
    for (std::string layer; std::getline(lower, layer, ':');) image.layers.push_back(layer);
    if (const auto config = json.find("Config"); config != json.end() && config->contains("Env"))
      image.environment = config->at("Env").get<std::vector<std::string>>();
    return image;
  } catch (const nlohmann::json::exception& error) {
    return FailedPrecondition(
        std::string("container.image: `podman image inspect` says it in another way than known: ") +
        error.what());
  }
}

std::vector<std::string> ParseLoadedLibraries(const std::string& text) {
  std::vector<std::string> files;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    while (words >> word)
      if (word.front() == '/') {
        files.push_back(fs::path(word).lexically_normal().string());
        break;
      }
  }
  return files;
}

std::vector<RootMount> ContainerMounts(const JobSpec& spec, const Prepare& prepare,
                                       const std::string& job_dir,
                                       const std::vector<std::string>& programs) {
  std::vector<RootMount> mounts;
  const auto add_same = [&mounts](const std::string& path, bool read_only = false) {
    mounts.push_back({.source = path, .target = path, .read_only = read_only});
  };
  for (const char* of_the_kernel : {"/dev", "/proc", "/sys"}) add_same(of_the_kernel);
  for (const char* of_the_network : {"/etc/resolv.conf", "/etc/hosts"})
    mounts.push_back({of_the_network, of_the_network, /*read_only=*/true, /*optional=*/true});
  for (const std::string& program : programs) add_same(program, true);
  std::vector<std::string> own = {spec.workdir, prepare.output_dir, job_dir,
                                  TokenCache(spec, prepare)};
  for (std::size_t i = 0; i < own.size(); ++i) {
    const bool there = std::any_of(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const auto& other) { return IsBelow(own[i], other); });
    if (!own[i].empty() && !there) add_same(own[i]);
  }
  for (const ContainerMount& mount : spec.container.mounts)
    mounts.push_back({mount.source, mount.target, mount.read_only});
  // A directory before what is mounted in it, and the job's own mounts over Muster's.
  std::ranges::stable_sort(mounts, {}, &RootMount::target);
  return mounts;
}

Status PrepareContainer(const LaunchContext& context, const JobSpec& spec, const Prepare& prepare,
                        const std::string& job_dir) {
  const std::string file = ContainerFilePath(job_dir);
  // A newer image of that name is for other jobs.
  if (::access(file.c_str(), R_OK) == 0) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(const ContainerRoot root, Describe(context, spec, prepare, job_dir));
  MUSTER_RETURN_IF_ERROR(MakeDirectories(root.scratch));
  // It counts once it was entered.
  const std::string candidate = file + ".new";
  MUSTER_RETURN_IF_ERROR(ReplaceFile(candidate, EncodeContainerRoot(root)));
  SpawnOptions spawn{.argv = {context.guardian_path, kCheckContainer, candidate},
                     .environment = {}};
  if (const auto path = spec.env.find("PATH"); path != spec.env.end())
    spawn.environment.push_back("PATH=" + path->second);
  for (const std::string& needed : NeededInside(context, spec)) spawn.argv.push_back(needed);
  MUSTER_RETURN_IF_ERROR(Ask({.spawn = spawn, .limit = kEntryLimit}, "").status());
  std::error_code error;
  fs::rename(candidate, file, error);
  return error ? Unavailable("rename " + candidate + ": " + error.message()) : OkStatus();
}

}  // namespace muster::worker
