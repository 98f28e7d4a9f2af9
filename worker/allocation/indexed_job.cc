#include "worker/allocation/indexed_job.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <charconv>

namespace muster::worker {
namespace {

constexpr int kResolveAgainMs = 500;
constexpr std::int64_t kDefaultGracePeriod = 30;  // terminationGracePeriodSeconds
constexpr int kMostPods = 100000;                 // of an Indexed Job
constexpr std::size_t kShortUid = 8;

std::string VariableOf(const slurm::Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// `from`: what of the manifest gives the variable its value.
Result<std::string> TextVariable(const slurm::Environment& environment, const std::string& name,
                                 const std::string& from) {
  const std::string value = VariableOf(environment, name);
  if (!value.empty()) return value;
  return InvalidArgument("environment variable " + name +
                         " is not set, and this is a pod of an Indexed Job: set it in the "
                         "container's env to " +
                         from);
}

Result<int> NumberVariable(const std::string& name, const std::string& value, int lowest,
                           int most) {
  int number = 0;
  const char* const end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, number);
  if (read.ec == std::errc() && read.ptr == end && number >= lowest && number <= most)
    return number;
  return InvalidArgument("environment variable " + name + " is '" + value.substr(0, 200) +
                         "'; expected a number from " + std::to_string(lowest) + " to " +
                         std::to_string(most));
}

// The device plug-in names the GPUs of a container.
int GpusOf(const slurm::Environment& environment) {
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}) {
    const std::string value = VariableOf(environment, name);
    if (value.empty() || value == "all" || value == "none" || value == "void") continue;
    return static_cast<int>(slurm::VisibleGpus(value).size());
  }
  return 0;
}

class IndexedJobScheduler final : public Scheduler {
 public:
  explicit IndexedJobScheduler(int run) : run_(run) {}

  Result<AllocationState> Ask() override { return AllocationState{.batch_node = "", .run = run_}; }
  Result<std::optional<std::int64_t>> EndUnixSeconds() override {
    return std::optional<std::int64_t>();
  }
  Result<std::int64_t> KillWaitSeconds() override { return kDefaultGracePeriod; }
  // The exit code of the pods is the request.
  Result<bool> Requeue(const std::vector<std::string>&) override { return true; }
  Status Cancel() override { return OkStatus(); }

 private:
  const int run_;
};

}  // namespace

bool InIndexedJob(const slurm::Environment& environment) {
  return !VariableOf(environment, "JOB_COMPLETION_INDEX").empty();
}

Result<AutoTask> ReadIndexedJob(const slurm::Environment& environment) {
  MUSTER_ASSIGN_OR_RETURN(
      const std::string completions,
      TextVariable(environment, "MUSTER_COMPLETIONS", "the Job's spec.completions"));
  MUSTER_ASSIGN_OR_RETURN(const int pods,
                          NumberVariable("MUSTER_COMPLETIONS", completions, 1, kMostPods));
  MUSTER_ASSIGN_OR_RETURN(
      const int index,
      NumberVariable("JOB_COMPLETION_INDEX", VariableOf(environment, "JOB_COMPLETION_INDEX"), 0,
                     pods - 1));
  MUSTER_ASSIGN_OR_RETURN(const std::string job,
                          TextVariable(environment, "MUSTER_JOB_NAME",
                                       "the label batch.kubernetes.io/job-name of the pod"));
  MUSTER_ASSIGN_OR_RETURN(const std::string uid,
                          TextVariable(environment, "MUSTER_JOB_UID",
                                       "the label batch.kubernetes.io/controller-uid of the pod"));
  MUSTER_RETURN_IF_ERROR(
      TextVariable(environment, "MUSTER_SERVICE", "the name of the pods' headless Service")
          .status());
  AutoTask task;
  const std::string name = job + "-" + uid.substr(0, kShortUid);
  task.allocation = AsName(name);
  task.step = uid;
  for (int i = 0; i < pods; ++i) task.nodes.push_back(job + "-" + std::to_string(i));
  task.node_id = index;
  task.state_name = "kubernetes-" + name;
  // Short: Unix sockets lie below it.
  task.local_name = uid.substr(0, kShortUid) + "-" + std::to_string(index);
  const std::string tmp = VariableOf(environment, "TMPDIR");
  task.tmp_dir = tmp.empty() ? "/tmp" : tmp;
  task.gpus = GpusOf(environment);
  task.words = {.more_nodes = "set the Job's completions, parallelism and MUSTER_COMPLETIONS to ",
                .more_gpus = "give --slots, or the container a limit of nvidia.com/gpu: ",
                .no_gpus = "NVIDIA_VISIBLE_DEVICES of this pod names none",
                .to_logs = "--slurm-job DIR, with the directory " + task.state_name};
  return task;
}

std::string HostOf(const AutoTask& task, const slurm::Environment& environment) {
  return task.node_name() + "." + VariableOf(environment, "MUSTER_SERVICE");
}

Result<std::string> AwaitAddress(const std::string& host, Duration limit) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  int failed = 0;
  for (const Deadline deadline = Deadline::After(limit);;) {
    addrinfo* list = nullptr;
    failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
    if (failed == 0) {
      char address[NI_MAXHOST];
      failed = ::getnameinfo(list->ai_addr, list->ai_addrlen, address, sizeof address, nullptr, 0,
                             NI_NUMERICHOST);
      ::freeaddrinfo(list);
      if (failed == 0) return std::string(address);
    }
    if (deadline.Expired()) break;
    (void)::poll(nullptr, 0, kResolveAgainMs);
  }
  return Unavailable("the pod's own name " + host + " has no address (" + ::gai_strerror(failed) +
                     "): the Job's pods need `subdomain:` with the name of a headless Service that "
                     "selects them and has publishNotReadyAddresses, or --interface");
}

std::unique_ptr<Scheduler> MakeIndexedJobScheduler(int run) {
  return std::make_unique<IndexedJobScheduler>(run);
}

}  // namespace muster::worker
