#include "common/slurm/sbatch_script.h"
#include "common/job_spec/queue_names.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "common/base/version.h"
#include "common/job_spec/parse.h"
#include "common/slurm/container_mounts.h"
#include "common/slurm/hostlist.h"

namespace muster::slurm {
namespace {

namespace fs = std::filesystem;

constexpr char kCommentHead[] = "muster key=";
constexpr char kCommentPlace[] = " at ";

// What every such script does; @NAME@ becomes a quoted text.
constexpr char kBody[] = R"sh(
set -u
job=${SLURM_JOB_ID:?start this script with sbatch}
run=${SLURM_RESTART_COUNT:-0}
nodes=$SLURM_JOB_NUM_NODES
state=@STATE@$job
logs=@LOGS@$job
say() { echo "muster: $(date '+%F %T') Slurm job $job, run $run: $*"; }

(umask 077 && mkdir -p "$state") || exit 73
echo "$job" > @STARTED@

# srun passes SIGUSR2 on to the supervisors: save the state and stop. SIGTERM would make it end the
# step at once, so it becomes the same request; Slurm itself sends it to the supervisors too, and
# what --signal names, unless that begins with B:.
asked=0
ask_to_stop() {
  asked=1
  [[ -z ${step:-} ]] || kill -USR2 "$step" 2>/dev/null
}
trap ask_to_stop USR1 USR2 TERM

say "starts on $SLURM_JOB_NODELIST"
@SRUN@ &
step=$!
((asked == 0)) || ask_to_stop
# A signal ends a wait early; 127 is a step that was already waited for.
code=127
while :; do
  asked=0
  wait "$step"
  waited=$?
  ((waited == 127)) || code=$waited
  ((asked)) || break
done

# What the supervisors agreed on is the job's end; srun's code only reports the task that was
# worst. Reading the directory makes a network file system look again.
outcome=
ls "$state" > /dev/null 2>&1
if outcome=$(cat "$state/outcome.json" 2>/dev/null) && [[ $outcome =~ \"run\":\ *$run[,}] ]]; then
  [[ $outcome =~ \"exit_code\":\ *([0-9]+) ]] && code=${BASH_REMATCH[1]}
  say "ended with $code: $outcome"
else
  say "srun ended with $code, and the supervisors left no outcome in $state"
  outcome=
  # Work may be left: a step that was killed goes on later, and nothing is done without saying so.
  ((code <= 128)) || code=75
  ((code != 0)) || code=70
fi

# Without the nodes $1 and those that were excluded before. Slurm takes it of a job that waits only,
# which it does not while a lost node is being given up.
leave_out() {
  local shown before all node known why
  for ((i = 0; i < 20; i++)); do
    before=
    if shown=$(scontrol show job -o "$job" 2>&1); then
      [[ $shown =~ \ ExcNodeList=([^ ]+) && ${BASH_REMATCH[1]} != "(null)" ]] && before=${BASH_REMATCH[1]}
      known=${before:+$(scontrol show hostnames "$before")}
      all=$before
      for node in ${1//,/ }; do
        [[ $'\n'$known$'\n' == *$'\n'"$node"$'\n'* ]] || all+=${all:+,}$node
      done
      why=$(scontrol update JobId="$job" ExcNodeList="$all" 2>&1) && return
    else
      why=$shown
    fi
    sleep 1
  done
  say "it is requeued, but may get $1 again, since Slurm does not exclude them: $why"
}

# The same job again, unless Slurm is ending it already: a cancelled one must stay so. Then it is in
# Slurm's hands, which ends this script.
requeue() {
  local now
  now=$(squeue -h -t all -j "$job" -o %T 2>/dev/null)
  [[ -z $now || $now == RUNNING ]] || { say "Slurm has it $now, so it is not requeued here"; return 0; }
  (trap '' TERM; exec scontrol requeue "$job") || return 1
  [[ ! $outcome =~ \"exclude\":\ *\[([^]]+)\] ]] || (trap '' TERM; leave_out "${BASH_REMATCH[1]//[\" ]/}")
  return 0
}

if ((code == 75)); then
  # Slurm answers a requeue by SIGTERM, which must not come between it and the nodes to leave out.
  stopping=0
  trap 'stopping=1' TERM
  if ((run >= @REQUEUES@)); then
    say "was requeued $run times, which is the limit (--max-requeues)"
    exit 69
  fi
  # Slurm ends this script when it requeues; until then it must not end by itself.
  if requeue; then
    trap 'exit 75' TERM
    ((stopping == 0)) || exit 75
    for ((i = 0; i < 120; i++)); do
      sleep 1 &
      wait $!
    done
    say "Slurm has not ended this script within two minutes; squeue -j $job shows what becomes of the job"
  else
    say "could not be requeued; submit it again, and it goes on from its last checkpoint"
  fi
fi
exit "$code"
)sh";

// In Slurm's file names % begins a field, and a backslash switches that off.
std::string AsPattern(const std::string& path) {
  std::string pattern;
  for (const char c : path) pattern += c == '%' ? "%%" : std::string(1, c);
  return pattern;
}

std::string Replaced(std::string text, const std::string& name, const std::string& value) {
  const std::size_t at = text.find(name);
  if (at != std::string::npos) text.replace(at, name.size(), value);
  return text;
}

// In minutes, rounded up, as "D-HH:MM:00".
std::string TimeLimit(std::int64_t seconds) {
  const std::int64_t minutes = (seconds + 59) / 60;
  const auto two = [](std::int64_t n) { return (n < 10 ? "0" : "") + std::to_string(n); };
  return std::to_string(minutes / 1440) + "-" + two(minutes / 60 % 24) + ":" + two(minutes % 60) +
         ":00";
}

// What the script asks Slurm for, where the user has not said it otherwise.
class Head {
 public:
  explicit Head(const SbatchOptions& user) : user_(user) {}

  void Always(const std::string& name, std::optional<std::string> value = std::nullopt) {
    options_.push_back({name, std::move(value)});
  }
  void Unless(std::initializer_list<std::string_view> contradicted, const std::string& name,
              std::optional<std::string> value = std::nullopt) {
    if (!user_.Has(contradicted)) Always(name, std::move(value));
  }

  Result<std::string> Text() const {
    std::string text;
    for (const auto* options : {&options_, &user_.batch()})
      for (const SbatchOption& option : *options) {
        MUSTER_ASSIGN_OR_RETURN(const std::string line, Directive(option));
        text += line + "\n";
      }
    return text;
  }

 private:
  const SbatchOptions& user_;
  std::vector<SbatchOption> options_;
};

std::string NodesOption(const ResourceSpec& resources) {
  const std::string nodes = std::to_string(resources.nodes);
  if (resources.spares == 0) return nodes;
  return nodes + "-" + std::to_string(resources.nodes + resources.spares);
}

void AddResources(const ResourceSpec& resources, const SbatchOptions& user, Head& head) {
  head.Unless({"nodes", "nodelist", "nodefile"}, "nodes", NodesOption(resources));
  // Without --ntasks-per-node, which srun has: with it Slurm gives the fewest nodes of a range.
  const bool shared = user.Has({"oversubscribe", "cpus-per-task", "overcommit", "cpus-per-gpu"});
  if (!shared) {
    head.Unless({"exclusive"}, "exclusive");
    head.Unless({"mem", "mem-per-cpu", "mem-per-gpu"}, "mem", "0");
  } else {
    head.Unless({"cpus-per-task", "cpus-per-gpu"}, "cpus-per-task",
                std::to_string(resources.ranks_per_node * resources.cpus_per_rank));
  }
  if (resources.device == "cuda")
    head.Unless({"gpus-per-node", "gpus", "gres", "gpus-per-socket"}, "gpus-per-node",
                std::to_string(resources.ranks_per_node));
  if (!resources.exclude.empty())
    head.Unless({"exclude"}, "exclude", CompressHostlist(resources.exclude));
  if (resources.time_limit_seconds > 0)
    head.Unless({"time"}, "time", TimeLimit(resources.time_limit_seconds));
}

Result<std::string> HeadText(const ScriptRequest& request, const JobPlaces& places) {
  Head head(request.options);
  head.Always("job-name", request.spec.name);
  head.Always("comment", CommentOf(request.key, places));
  AddResources(request.spec.resources, request.options, head);
  head.Always("no-kill");
  head.Unless({"requeue", "no-requeue"}, "requeue");
  head.Unless({"signal"}, "signal", "USR2@" + std::to_string(request.signal_lead_seconds));
  head.Unless({"open-mode"}, "open-mode", "append");
  head.Unless({"output"}, "output", AsPattern(places.submission) + "/slurm-%j.out");
  head.Unless({"chdir"}, "chdir", request.spec.workdir);
  return head.Text();
}

// What supervisors and ranks read and write beside the job's own data: the workdir, and where the
// submission and the supervisors' state lie.
Result<std::vector<std::string>> MountsBeside(const ScriptRequest& request, const JobPlaces& places,
                                              const std::vector<std::string>& given) {
  return MissingMounts({request.spec.workdir, fs::path(places.state_prefix).parent_path().string()},
                       given);
}

// The options of a container by pyxis, which takes the last --container-mounts alone.
Result<std::string> StepOptions(const ScriptRequest& request, const JobPlaces& places) {
  std::string text;
  std::string mounts;
  bool by_pyxis = false;
  const auto add = [&text](const SbatchOption& option) {
    text += "  " + ShellQuoted("--" + option.name + (option.value ? "=" + *option.value : "")) +
            " \\\n";
  };
  for (const SbatchOption& option : request.options.step()) {
    by_pyxis = by_pyxis || option.name == "container-image" || option.name == "container-name";
    if (option.name == "container-mounts")
      mounts = option.value.value_or("");
    else
      add(option);
  }
  if (by_pyxis) {
    MUSTER_ASSIGN_OR_RETURN(const auto missing, MountsBeside(request, places, {mounts}));
    for (const std::string& path : missing) mounts += (mounts.empty() ? "" : ",") + path;
  }
  if (!mounts.empty()) add({"container-mounts", mounts});
  return text;
}

Result<std::string> ApptainerWords(const ScriptRequest& request, const JobPlaces& places) {
  if (request.apptainer_image.empty()) return std::string();
  std::vector<std::string> given;
  const std::vector<std::string>& options = request.apptainer_options;
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (options[i].starts_with("--bind=")) given.push_back(options[i].substr(7));
    if (i > 0 && (options[i - 1] == "--bind" || options[i - 1] == "-B"))
      given.push_back(options[i]);
  }
  std::string text = "  apptainer exec";
  if (request.spec.resources.device == "cuda") text += " --nv";
  MUSTER_ASSIGN_OR_RETURN(const auto missing, MountsBeside(request, places, given));
  for (const std::string& path : missing) text += " --bind " + ShellQuoted(path);
  for (const std::string& option : options) text += " " + ShellQuoted(option);
  return text + " " + ShellQuoted(request.apptainer_image) + " \\\n";
}

Result<std::string> SrunText(const ScriptRequest& request, const JobPlaces& places) {
  MUSTER_ASSIGN_OR_RETURN(const std::string step, StepOptions(request, places));
  MUSTER_ASSIGN_OR_RETURN(const std::string apptainer, ApptainerWords(request, places));
  std::string text =
      "srun --nodes=\"$nodes\" --ntasks=\"$nodes\" --ntasks-per-node=1 --cpu-bind=none \\\n"
      "  --no-kill --kill-on-bad-exit=0 --wait=0 \\\n"
      "  --open-mode=append --output=\"$logs/supervisor.%t.log\" \\\n";
  text += step + apptainer;
  text += "  " + ShellQuoted(request.worker) + " --auto --job " +
          ShellQuoted(places.submission + "/job.yaml") + " --state \"$state\"";
  for (const std::string& argument : request.worker_arguments) text += " " + ShellQuoted(argument);
  return text;
}

// Fewer nodes than the job needs would be found out only behind the queue. Of texts in another form
// nothing is known.
std::optional<std::int64_t> FewestNodes(const SbatchOptions& user) {
  if (const auto nodes = user.ValueOf("nodes")) {
    const std::string text = nodes->substr(0, nodes->find('-'));
    std::int64_t count = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), count);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
    return count;
  }
  const auto list = user.ValueOf("nodelist");
  const auto names = ExpandHostlist(list.value_or(""));
  if (!list || !names.ok() || names->empty()) return std::nullopt;
  return static_cast<std::int64_t>(names->size());
}

Status CheckNodes(const ScriptRequest& request) {
  const int needed = request.spec.resources.nodes;
  const auto fewest = FewestNodes(request.options);
  if (!fewest || *fewest >= needed) return OkStatus();
  return InvalidArgument("the job needs " + std::to_string(needed) +
                         " nodes (resources.nodes), and sbatch's options may bring " +
                         std::to_string(*fewest) + ": ask for --nodes=" + std::to_string(needed) +
                         " or more, or set resources.nodes=" + std::to_string(*fewest));
}

Status CheckPath(const std::string& path) {
  const bool bad = std::any_of(path.begin(), path.end(), [](char c) {
    return c == '\\' || static_cast<unsigned char>(c) < ' ';
  });
  if (bad || path.empty() || path.front() != '/')
    return InvalidArgument("'" + path +
                           "' cannot be the place of a Slurm job's files: it must be "
                           "an absolute path without backslashes and line ends; set workdir or "
                           "train.output.dir");
  return OkStatus();
}

}  // namespace

JobPlaces PlacesOf(const JobSpec& spec, const std::string& key) {
  const std::string submission = "slurm/" + spec.name + "-" + key;
  const fs::path above = spec.train ? fs::path(OutputDirectory(spec, JobId{}))
                                    : fs::path(spec.workdir) / ("muster-" + spec.name);
  return {(above / submission).string(), SharedPrefix(spec) + "slurm-"};
}

std::string SharedPrefix(const JobSpec& spec) {
  if (spec.train) return (fs::path(OutputDirectory(spec, JobId{})) / "").string();
  return (fs::path(spec.workdir) / ("muster-" + spec.name + "-")).string();
}

Status CheckScheduling(const JobSpec& spec) {
  const auto refused = [](const char* key, const char* option) {
    return InvalidArgument(std::string(key) +
                           ": under Slurm its scheduler decides when a job runs; "
                           "leave the key out, and give sbatch " +
                           option);
  };
  if (!spec.begin.empty()) return refused("begin", "--begin");
  if (spec.hold) return refused("hold", "--hold");
  if (QueueName(spec.queue) != kDefaultQueue) return refused("queue", "--partition or --account");
  if (ClassName(spec.priority_class) != kNormalClass) return refused("class", "--qos");
  return OkStatus();
}

Result<std::string> RenderScript(const ScriptRequest& request) {
  const JobPlaces places = PlacesOf(request.spec, request.key);
  MUSTER_RETURN_IF_ERROR(CheckKey(request.key));
  MUSTER_RETURN_IF_ERROR(CheckScheduling(request.spec));
  MUSTER_RETURN_IF_ERROR(CheckNodes(request));
  MUSTER_RETURN_IF_ERROR(CheckPath(places.submission));
  MUSTER_RETURN_IF_ERROR(CheckPath(request.spec.workdir));
  MUSTER_ASSIGN_OR_RETURN(const std::string head, HeadText(request, places));
  MUSTER_ASSIGN_OR_RETURN(const std::string srun, SrunText(request, places));
  std::string body = kBody;
  // The last first: a text may hold what looks like a later one's place.
  body = Replaced(body, "@REQUEUES@", std::to_string(request.max_requeues));
  body = Replaced(body, "@SRUN@", srun);
  body = Replaced(body, "@STARTED@", ShellQuoted(places.submission + "/started"));
  body = Replaced(body, "@LOGS@", ShellQuoted(AsPattern(places.state_prefix)));
  body = Replaced(body, "@STATE@", ShellQuoted(places.state_prefix));
  return "#!/bin/bash\n# The job " + request.spec.name + " under Slurm, made by muster " +
         std::string(kVersion) + ". docs/slurm.md explains it.\n" + head + body;
}

std::string CommentOf(const std::string& key, const JobPlaces& places) {
  return kCommentHead + key + kCommentPlace + places.state_prefix;
}

std::optional<SubmissionComment> ParseComment(std::string_view comment) {
  if (!comment.starts_with(kCommentHead)) return std::nullopt;
  comment.remove_prefix(sizeof kCommentHead - 1);
  const std::size_t place = comment.find(kCommentPlace);
  if (place == std::string_view::npos) return std::nullopt;
  return SubmissionComment{std::string(comment.substr(0, place)),
                           std::string(comment.substr(place + sizeof kCommentPlace - 1))};
}

Status CheckKey(const std::string& key) {
  const bool good = !key.empty() && key.size() <= 64 && key.front() != '.' &&
                    key.find_first_not_of(
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789-_.") == std::string::npos;
  if (good) return OkStatus();
  return InvalidArgument("the key '" + key.substr(0, 80) +
                         "' must be 1 to 64 letters, digits, '-', '_' and '.', and not begin with "
                         "a dot: it names a directory");
}

}  // namespace muster::slurm
