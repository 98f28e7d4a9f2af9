#include "common/slurm/doctor.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace muster::slurm {
namespace {

// Releases of Slurm by what they brought.
constexpr SlurmVersion kOldest{20, 2};
constexpr SlurmVersion kMeasured{22, 5};
constexpr SlurmVersion kExpedite{25, 11};
// Of munge's credentials, where cred_expire does not say otherwise; a requeued job waits so long.
constexpr std::int64_t kDefaultCredExpire = 120;
constexpr std::int64_t kLongRequeueDelay = 30;
constexpr std::int64_t kLongSlurmdTimeout = 120;
constexpr std::int64_t kShortKillWait = 15;

class Judge {
 public:
  explicit Judge(const DoctorQuestion& question) : question_(question) {}

  std::vector<Finding> Run() {
    Version();
    Requeues();
    RequeueDelay();
    RequeueExit();
    DeadNodes();
    KillWait();
    Preemption();
    TimeLimit();
    Cgroups();
    Binding();
    Ports();
    Forget();
    return std::move(findings_);
  }

 private:
  void Add(std::string check, Verdict verdict, std::string what, std::string change = "") {
    findings_.push_back({std::move(check), verdict, std::move(what), std::move(change)});
  }

  // Without Slurm's words for nothing.
  std::string Value(const Settings& settings, const std::string& key) const {
    const auto found = settings.find(key);
    if (found == settings.end() || found->second == "(null)" || found->second == "N/A") return "";
    return found->second;
  }
  std::string Config(const std::string& key) const { return Value(question_.config, key); }

  // The number of NAME=number in a comma-separated list.
  std::optional<std::int64_t> Parameter(const std::string& key, const std::string& name) const {
    const std::string list = "," + Config(key);
    const std::size_t at = list.find("," + name + "=");
    if (at == std::string::npos) return std::nullopt;
    return ParseSpan(
        list.substr(at + name.size() + 2, list.find(',', at + 1) - at - name.size() - 2));
  }
  bool HasFlag(const std::string& key, const std::string& flag) const {
    return ("," + Config(key) + ",").find("," + flag + ",") != std::string::npos;
  }

  const Settings* Partition() const {
    for (const auto& [name, settings] : question_.partitions)
      if (question_.partition.empty() ? Value(settings, "Default") == "YES"
                                      : name == question_.partition)
        return &settings;
    return nullptr;
  }

  SlurmVersion Release() const {
    return ParseVersion(Config("SLURM_VERSION")).value_or(SlurmVersion{});
  }

  void Version();
  void Requeues();
  void RequeueDelay();
  void RequeueExit();
  void DeadNodes();
  void KillWait();
  void Preemption();
  void TimeLimit();
  void Cgroups();
  void Binding();
  void Ports();
  void Forget();

  const DoctorQuestion& question_;
  std::vector<Finding> findings_;
};

std::string Seconds(std::int64_t seconds) { return std::to_string(seconds) + " s"; }

void Judge::Version() {
  const std::string version = Config("SLURM_VERSION");
  const SlurmVersion release = Release();
  if (release == SlurmVersion{}) {
    Add("version", Verdict::kFail, "scontrol show config has no SLURM_VERSION",
        "run this where scontrol reaches the cluster's slurmctld");
  } else if (release < kOldest) {
    Add("version", Verdict::kFail, "Slurm " + version + " is older than what is supported",
        "upgrade to 20.02 or later");
  } else if (release < kMeasured) {
    Add("version", Verdict::kWarn, "Slurm " + version + " is older than what was tested, 22.05",
        "try a small job with a killed node first");
  } else if (release >= kExpedite && HasFlag("SchedulerParameters", "enable_expedited_requeue")) {
    Add("version", Verdict::kOk,
        "Slurm " + version + " can requeue at top priority and hold the old nodes",
        "give --requeue=expedite to muster slurm submit");
  } else {
    Add("version", Verdict::kOk, "Slurm " + version);
  }
}

void Judge::Requeues() {
  if (Config("JobRequeue") == "0")
    Add("requeue", Verdict::kOk,
        "the cluster requeues no job by itself, but ones that ask for it, as muster's scripts do");
  else
    Add("requeue", Verdict::kOk, "batch jobs may be requeued");
}

void Judge::RequeueDelay() {
  // Since 25.11 the delay has a setting of its own.
  const std::int64_t delay =
      Parameter("SchedulerParameters", "requeue_delay")
          .value_or(Parameter("AuthInfo", "cred_expire").value_or(kDefaultCredExpire));
  if (delay <= kLongRequeueDelay) {
    Add("requeue-delay", Verdict::kOk, "a requeued job may start after " + Seconds(delay));
    return;
  }
  Add("requeue-delay", Verdict::kWarn,
      "a requeued job waits " + Seconds(delay) + " before it may start",
      std::string("the administrator can set ") +
          (Release() >= kExpedite ? "SchedulerParameters=requeue_delay=5"
                                  : "AuthInfo=cred_expire=30, the lifetime of credentials") +
          "; spares (--spares) avoid the requeue");
}

void Judge::RequeueExit() {
  const std::string codes = Config("RequeueExit");
  const std::string held = Config("RequeueExitHold");
  if (("," + held + ",").find(",75,") != std::string::npos)
    Add("requeue-exit", Verdict::kFail,
        "RequeueExitHold has 75, so a job that asks to be requeued is held until an administrator "
        "releases it",
        "the administrator moves 75 from RequeueExitHold to RequeueExit");
  else if (("," + codes + ",").find(",75,") != std::string::npos)
    Add("requeue-exit", Verdict::kOk, "exit code 75 requeues a job also where scontrol fails");
  else
    Add("requeue-exit", Verdict::kOk,
        "exit code 75 does not requeue by itself; the script calls scontrol requeue");
}

void Judge::DeadNodes() {
  const std::int64_t timeout = ParseSpan(Config("SlurmdTimeout")).value_or(300);
  if (timeout == 0)
    Add("slurmd-timeout", Verdict::kWarn,
        "SlurmdTimeout is 0: Slurm never gives a dead node up, so no other replaces it",
        "the administrator sets SlurmdTimeout=60");
  else if (timeout > kLongSlurmdTimeout)
    Add("slurmd-timeout", Verdict::kWarn,
        "Slurm notices a dead node after " + Seconds(timeout) +
            "; muster itself does in seconds, but a job that has to be requeued for it waits so "
            "long",
        "use --spares, or have the administrator set SlurmdTimeout=60");
  else
    Add("slurmd-timeout", Verdict::kOk, "Slurm notices a dead node after " + Seconds(timeout));
}

void Judge::KillWait() {
  const std::int64_t wait = ParseSpan(Config("KillWait")).value_or(30);
  const double checkpoint = question_.checkpoint_seconds.value_or(0);
  const double grace = std::min(TermGraceSeconds(wait), kMostTermGraceSeconds);
  const std::string there = "from SIGTERM to SIGKILL there are " + Seconds(wait) + ", of which " +
                            Seconds(static_cast<std::int64_t>(grace)) +
                            " are the job's to save its state";
  if (question_.checkpoint_seconds && grace < checkpoint * 1.5) {
    Add("kill-wait", Verdict::kWarn,
        there + ", and a checkpoint takes " +
            Seconds(static_cast<std::int64_t>(std::ceil(checkpoint))) +
            ": what is killed without notice goes on from an older one",
        TermGraceSeconds(wait) >= checkpoint * 1.5
            ? "submit with --worker-arg=--term-grace=" +
                  std::to_string(static_cast<std::int64_t>(TermGraceSeconds(wait)))
            : "have the administrator raise KillWait, or checkpoint more often");
  } else if (!question_.checkpoint_seconds && wait < kShortKillWait) {
    Add("kill-wait", Verdict::kWarn, there + ", which large models may not be saved in",
        "give --checkpoint-seconds to know, or have the administrator raise KillWait");
  } else {
    Add("kill-wait", Verdict::kOk, there);
  }
  if (checkpoint * 2 + 60 > question_.signal_lead_seconds)
    Add("signal-lead", Verdict::kWarn,
        "the notice of the time's end comes " + Seconds(question_.signal_lead_seconds) +
            " ahead, and Slurm may be 60 s late or early",
        "submit with --signal-lead=" +
            std::to_string(static_cast<std::int64_t>(std::ceil(checkpoint * 2 + 60))));
}

void Judge::Preemption() {
  const std::string type = Config("PreemptType");
  if (type.empty() || type == "preempt/none") {
    Add("preemption", Verdict::kOk, "no job is preempted");
    return;
  }
  const Settings* partition = Partition();
  std::string mode = partition != nullptr ? Value(*partition, "PreemptMode") : "";
  if (mode.empty()) mode = Config("PreemptMode");
  const std::int64_t grace =
      partition != nullptr ? ParseSpan(Value(*partition, "GraceTime")).value_or(0) : 0;
  const bool signal = HasFlag("PreemptParameters", "send_user_signal") ||
                      HasFlag("SlurmctldParameters", "preempt_send_user_signal");
  if (mode.find("SUSPEND") != std::string::npos)
    Add("preemption", Verdict::kWarn,
        "preempted jobs are suspended with their memory (PreemptMode=" + mode +
            "), and all ranks must stop and go on at once for collectives to survive that",
        "ask for a partition or QOS with PreemptMode=REQUEUE");
  else if (mode.find("CANCEL") != std::string::npos)
    Add("preemption", Verdict::kWarn,
        "preempted jobs are cancelled (PreemptMode=" + mode +
            "): muster saves within the grace period, but the job is not submitted again",
        "ask for a partition or QOS with PreemptMode=REQUEUE, or submit again after a preemption");
  else
    Add("preemption", Verdict::kOk, "preempted jobs are requeued (PreemptMode=" + mode + ")");
  if (mode == "OFF") return;
  const auto needed =
      static_cast<std::int64_t>(std::ceil(question_.checkpoint_seconds.value_or(10) * 1.5));
  if (grace < needed)
    Add("grace-time", Verdict::kWarn,
        "a preempted job has " + Seconds(grace) + " to save its state (GraceTime)",
        "the administrator sets GraceTime=" + std::to_string(std::max<std::int64_t>(needed, 60)) +
            " for the partition or QOS");
  else
    Add("grace-time", Verdict::kOk, "a preempted job has " + Seconds(grace) + " to save its state");
  Add("preempt-signal", Verdict::kOk,
      (signal ? std::string("a preempted job gets the signal of --signal first")
              : std::string("a preempted job gets SIGTERM, not the signal of --signal")) +
          "; muster saves at USR1, USR2 and TERM, also where B: sends it to the batch script");
}

void Judge::TimeLimit() {
  const Settings* partition = Partition();
  if (partition == nullptr) {
    if (!question_.partition.empty())
      Add("partition", Verdict::kFail, "there is no partition " + question_.partition,
          "sinfo lists those that there are");
    return;
  }
  const std::string limit = Value(*partition, "MaxTime");
  const auto seconds = ParseSpan(limit);
  if (seconds && *seconds <= 2 * question_.signal_lead_seconds)
    Add("time-limit", Verdict::kFail,
        "the partition gives a job " + limit + ", of which the notice of its end takes " +
            Seconds(question_.signal_lead_seconds),
        "use another partition, or a shorter --signal-lead");
  else
    Add("time-limit", Verdict::kOk,
        seconds ? "the partition gives a job " + limit +
                      " at a time; it is saved and requeued "
                      "at the end of it"
                : "the partition has no time limit");
}

void Judge::Cgroups() {
  const std::string tracking = Config("ProctrackType");
  if (tracking.find("cgroup") == std::string::npos)
    Add("process-tracking", Verdict::kWarn,
        "processes are tracked by " + (tracking.empty() ? std::string("nothing") : tracking) +
            ", which those that leave their session escape: ranks may be left behind on a node",
        "the administrator sets ProctrackType=proctrack/cgroup");
  else
    Add("process-tracking", Verdict::kOk, "processes are tracked by cgroups");
  const std::string devices = Config("ConstrainDevices");
  if (Config("GresTypes").find("gpu") == std::string::npos) return;
  if (devices == "yes")
    Add("gpu-isolation", Verdict::kOk, "a job sees its own GPUs only");
  else
    Add("gpu-isolation", Verdict::kWarn,
        "GPUs are given by CUDA_VISIBLE_DEVICES alone, and jobs that share a node can touch each "
        "other's",
        "keep nodes to yourself, as muster's scripts ask for (--exclusive), or have the "
        "administrator set ConstrainDevices=yes in cgroup.conf");
}

void Judge::Binding() {
  const std::string plugin = Config("TaskPlugin");
  if (plugin.empty() || plugin == "task/none")
    Add("cpu-binding", Verdict::kOk, "Slurm binds no CPUs; the ranks are bound by muster");
  else
    Add("cpu-binding", Verdict::kOk,
        "Slurm could bind CPUs (" + plugin + "); the script asks it not to (--cpu-bind=none)");
}

void Judge::Ports() {
  const std::string range = Config("SrunPortRange");
  if (range.empty() || range == "0-0") return;
  Add("srun-ports", Verdict::kWarn,
      "srun is kept to the ports " + range +
          ", so a firewall is likely between the nodes; muster takes any free port",
      "try it: muster slurm doctor --nodes 2; have all TCP ports opened between compute nodes, or "
      "choose another network by --worker-arg=--interface=NAME");
}

void Judge::Forget() {
  const std::int64_t age = ParseSpan(Config("MinJobAge")).value_or(300);
  if (age < 60)
    Add("min-job-age", Verdict::kWarn,
        "Slurm forgets an ended job after " + Seconds(age) +
            ", and --wait may then not learn its end",
        "the administrator sets MinJobAge=300");
}

}  // namespace

std::vector<Finding> JudgeSettings(const DoctorQuestion& question) { return Judge(question).Run(); }

}  // namespace muster::slurm
