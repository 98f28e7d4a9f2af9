#include "worker/agent/preflight.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "common/base/files.h"
#include "common/base/hub_id.h"
#include "common/base/json.h"
#include "common/base/replace_file.h"
#include "common/control_pipe/packet_socket.h"
#include "common/job_spec/parse.h"
#include "common/process/spawn.h"
#include "worker/agent/container.h"
#include "worker/agent/job_records.h"
#include "worker/agent/trainer_versions.h"
#include "worker/process/record_file.h"

namespace muster::worker {
namespace {

constexpr std::size_t kMaxLaunchBytes = 64 << 10;  // limit of the part that differs between jobs
// Within the coordinator's timeout for a preparation; libraries of CUDA on a cold disk take long.
constexpr Duration kTrainerTimeout = std::chrono::seconds(25);

bool IsDirectory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string Absolute(const std::string& path, const std::string& base) {
  return std::filesystem::path(path).is_absolute() ? path : base + "/" + path;
}

Status CheckProgram(const LaunchContext& context, const JobSpec& spec) {
  const bool needs_trainer = spec.train || spec.rendezvous == RendezvousKind::kAgent;
  if (needs_trainer && ::access(context.trainer_path.c_str(), X_OK) != 0)
    return NotFound("no muster-trainer at " + context.trainer_path +
                    " on this node; build it or start the worker with --trainer PATH");
  if (!spec.container.image.empty()) return OkStatus();  // what is in there is seen in there
  if (spec.train) {
    const std::string model = Absolute(spec.train->model.path, spec.workdir);
    // The trainer knows the Hub's cache, and says what it lacks.
    if (!IsDirectory(model) && !ParseHubId(spec.train->model.path))
      return NotFound("train.model.path: there is no directory " + model + " on this node");
    return OkStatus();
  }
  if (spec.command.empty()) return InvalidArgument("command: it is empty");
  std::string search_path = "/usr/local/bin:/usr/bin:/bin";
  if (const auto it = context.passed_through.find("PATH"); it != context.passed_through.end())
    search_path = it->second;
  if (const auto it = spec.env.find("PATH"); it != spec.env.end()) search_path = it->second;
  return FindProgram(spec.command[0], search_path, spec.workdir).status().WithContext("command");
}

// Of `count` numbers below `limit` with a separator each, at most.
std::size_t NumberListBytes(int count, int limit) {
  return static_cast<std::size_t>(count) * (std::to_string(limit - 1).size() + 1);
}

// A launch is sent to the guardian in one packet, quoted and with Muster's additions. In it the
// lists of the gang's nodes (MUSTER_BUDDY_RING) and of the node's ranks grow with the job.
Status CheckLaunchSize(const JobSpec& spec) {
  std::size_t own = 0;
  for (const auto& [name, value] : spec.env) own += name.size() + value.size();
  for (const std::string& argument : spec.command) own += argument.size();
  const int nodes = spec.resources.nodes;
  const std::size_t lists = (spec.train ? NumberListBytes(nodes, nodes) : 0) +
                            NumberListBytes(spec.resources.ranks_per_node, spec.world_size());
  static_assert(kMaxLaunchBytes <= kMaxPacketBytes / 2);
  if (own + lists <= kMaxLaunchBytes) return OkStatus();
  return InvalidArgument(
      "env and command: they have " + std::to_string(own) + " bytes, and " + std::to_string(lists) +
      " more name the job's " + std::to_string(nodes) + " nodes and the ranks of each; at most " +
      std::to_string(kMaxLaunchBytes) +
      " together can be handed to a program; put some of env or command into a file");
}

// Failures that no other attempt would change.
Status CheckJob(const JobSpec& spec) {
  MUSTER_RETURN_IF_ERROR(CheckJobEnvironment(spec));
  return CheckLaunchSize(spec);
}

Status CheckOwnersFiles(const LaunchContext& context, const JobSpec& spec) {
  if (!IsDirectory(spec.workdir))
    return NotFound("workdir: there is no directory " + spec.workdir + " on this node");
  return CheckProgram(context, spec);
}

// The coordinator knows the devices of the worker's last Hello, and chooses anew at another
// attempt.
Status CheckDevices(const LaunchContext& context, const JobSpec& spec, const Prepare& prepare) {
  const std::size_t needed =
      prepare.ranks.size() * static_cast<std::size_t>(spec.resources.gpus.per_rank);
  if (prepare.devices.size() < needed)
    return FailedPrecondition("the job needs " + std::to_string(needed) +
                              " GPUs on this node, and got " +
                              std::to_string(prepare.devices.size()) + " of its " +
                              std::to_string(context.devices.size()));
  for (const std::string& id : prepare.devices) {
    const NodeDevice* const one = FindDevice(context.devices, id);
    if (one == nullptr)
      return FailedPrecondition("device " + id +
                                " is not on this node (any more); see `nvidia-smi`");
    if (!one->device.fault.empty())
      return FailedPrecondition("device " + id + " cannot be used: " + one->device.fault);
  }
  return OkStatus();
}

// A shared spare has no devices yet: all that the node has are alike.
bool OnFakeDevices(const LaunchContext& context, const Prepare& prepare) {
  return std::ranges::any_of(context.devices, [&](const NodeDevice& one) {
    const auto has = [&one](const std::string& id) { return id == one.device.id; };
    return one.device.fake &&
           (prepare.devices.empty() || std::ranges::any_of(prepare.devices, has));
  });
}

Status MakeFiles(const Prepare& prepare, const std::string& ranks_dir) {
  MUSTER_RETURN_IF_ERROR(MakeDirectories(LogDirectory(prepare.output_dir, prepare.generation)));
  MUSTER_RETURN_IF_ERROR(MakeDirectories(ranks_dir + "/errors", kPrivateDirectory));
  return WriteSpec(ranks_dir, prepare);
}

Status ReadClaim(const std::string& path, const JobId& job) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("id") || !json["id"].is_string())
    return FailedPrecondition(path + " is damaged; remove it if no job uses this directory");
  const std::string owner = json["id"];
  if (owner == job.value) return OkStatus();
  return FailedPrecondition("the output directory belongs to job " + owner + " (" + path +
                            "); choose another output.dir, or remove the directory if that job's "
                            "results are not needed");
}

}  // namespace

Status ClaimOutputDirectory(const std::string& output_dir, const JobId& job,
                            const std::string& name) {
  const std::string path = output_dir + "/job.json";
  if (::access(path.c_str(), F_OK) == 0) return ReadClaim(path, job);
  // Several nodes may claim a shared directory at once: a link makes one of them first, with its
  // content complete. Workers of two nodes may have the same pid, in particular in containers.
  std::uint64_t random = 0;
  (void)::getrandom(&random, sizeof random, 0);
  const std::string candidate = path + "." + std::to_string(random);
  const nlohmann::json json = {{"id", job.value}, {"name", name}};
  MUSTER_RETURN_IF_ERROR(ReplaceFile(candidate, json.dump() + "\n", 0644));
  const int linked = ::link(candidate.c_str(), path.c_str());
  const int error = errno;
  ::unlink(candidate.c_str());
  if (linked == 0) return OkStatus();
  if (error == EEXIST) return ReadClaim(path, job);
  return ErrnoStatus(error, "claim the output directory " + output_dir);
}

OwnersPart PrepareForOwner(const LaunchContext& context, const Prepare& prepare,
                           const std::string& ranks_dir) {
  const auto spec = ParseJobSpec(prepare.spec_yaml);
  if (!spec.ok()) return {.status = spec.status()};
  if (Status status = CheckOwnersFiles(context, *spec); !status.ok()) return {.status = status};
  if (Status status = MakeDirectories(prepare.output_dir); !status.ok())
    return {.status = status.WithContext("the output directory cannot be made")};
  if (Status status = ClaimOutputDirectory(prepare.output_dir, prepare.job, prepare.job_name);
      !status.ok())
    return {.status = status};
  if (Status status = MakeFiles(prepare, ranks_dir); !status.ok())
    return {.status = status, .retryable = true};
  if (spec->container.image.empty()) return {};
  const Status status = PrepareContainer(context, *spec, prepare, ranks_dir);
  return {.status = status, .retryable = status.code() == StatusCode::kDeadlineExceeded};
}

PreflightResult RunPreflight(const LaunchContext& context, const Prepare& prepare,
                             const std::string& job_dir,
                             const std::function<OwnersPart()>& prepare_for_owner) {
  auto spec = ParseJobSpec(prepare.spec_yaml);
  if (!spec.ok()) return {.status = spec.status()};
  if (Status status = CheckJob(*spec); !status.ok()) return {.status = status};
  if (Status status = CheckDevices(context, *spec, prepare); !status.ok())
    return {.status = status, .retryable = true};
  if (const OwnersPart done = prepare_for_owner(); !done.status.ok())
    return {.status = done.status, .retryable = done.retryable};
  if (Status status = WriteJobRecord(job_dir, prepare); !status.ok())
    return {.status = status, .retryable = true};
  std::optional<CudaStack> cuda;
  if (spec->train && spec->resources.device == "cuda" && !OnFakeDevices(context, prepare)) {
    auto stack = AskCudaStack(context.trainer_path, context.passed_through, kTrainerTimeout);
    if (!stack.ok())
      return {.status = stack.status().WithContext("resources.device: cuda"),
              .retryable = stack.status().code() == StatusCode::kDeadlineExceeded};
    cuda = *std::move(stack);
  }
  return {.spec = *std::move(spec), .cuda = std::move(cuda)};
}

}  // namespace muster::worker
