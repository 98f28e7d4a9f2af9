#include "coordinator/pilots/pilot_script.h"

#include <algorithm>

#include "common/slurm/hostlist.h"
#include "common/slurm/sbatch_options.h"

namespace muster {
namespace {

using slurm::ShellQuoted;

// @NAME@ becomes a quoted text or lines.
constexpr char kBody[] = R"sh(
set -u
export pilot=@PILOT@ pool=@POOL@
job=${SLURM_JOB_ID:?start this script with sbatch}
say() { echo "muster: $(date '+%F %T') pilot job $job: $*"; }

# Should Slurm ever have two jobs of this pilot, the first one is it.
(set -C && echo "$job" > "$pilot/started") 2>/dev/null
if [[ $(cat "$pilot/started" 2>/dev/null) != "$job" ]]; then
  say "no coordinator waits for it; exiting"
  exit 0
fi
@SETUP@
# What runs on each node.
read -rd '' part <<'PART'
set -u
node=$SLURMD_NODENAME
home=${TMPDIR:-/tmp}/muster-pilot-$SLURM_JOB_ID
say() { echo "muster: $(date '+%F %T') node $node: $*"; }
mkdir -m 700 "$home" || exit 73
exec {idle}<> <(:)
pause() { read -rt "$1" -u "$idle"; }
asked=0
told=0
trap 'asked=1' TERM USR1 USR2

# The coordinator renews a file as long as it lives. No two machines' clocks are compared.
beat=
seen=$SECONDS
is_wanted() {
  local now
  ls "$pool" > /dev/null 2>&1
  if [[ -d $pool && ! -d $pilot ]]; then
    say "its directory is gone"
    return 1
  fi
  now=$(cat "$pool/alive" 2>/dev/null)
  [[ $now == "$beat" ]] || { beat=$now; seen=$SECONDS; }
  ((SECONDS - seen < @ORPHAN@)) && return 0
  say "no coordinator for $((SECONDS - seen)) s"
  return 1
}

until [[ -s $pilot/tokens/$node ]]; do
  ((asked == 0)) && is_wanted || { rm -rf "$home"; exit 0; }
  pause 0.3
done
(
  # Notices ahead of the end are for this script, though Slurm may send them to all below it.
  trap '' USR1 USR2
  exec @WORKER@
) >> "$pilot/worker.$node.log" 2>&1 &
worker=$!
looked=$SECONDS
while kill -0 "$worker" 2>/dev/null; do
  pause 0.3
  # Of SIGTERM, too, some sites tell this script alone; a worker that has heard of it takes both for one.
  ((asked == 0 || told == 1)) || { told=1; kill -TERM "$worker"; }
  ((SECONDS - looked < 5)) && continue
  looked=$SECONDS
  ((asked == 1)) || is_wanted || asked=1
done
wait "$worker"
code=$?
rm -rf "$home"
((asked == 0)) || exit 0
exit "$code"
PART

asked=0
trap 'asked=1' TERM USR1 USR2
say "starts on $SLURM_JOB_NODELIST"
@SRUN@ &
step=$!
code=0
while kill -0 "$step" 2>/dev/null; do
  wait "$step"
  code=$?
done
say "ended with $code"
((asked == 0)) || exit 0
exit "$code"
)sh";

std::string Replaced(std::string text, const std::string& name, const std::string& value) {
  const std::size_t at = text.find(name);
  if (at != std::string::npos) text.replace(at, name.size(), value);
  return text;
}

std::string Words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + ShellQuoted(word);
  return text;
}

std::string MinutesText(std::int64_t seconds) { return std::to_string((seconds + 59) / 60); }

Status CheckPool(const std::string& pool) {
  const bool bad = std::any_of(pool.begin(), pool.end(), [](char c) {
    return c == '\\' || c == '%' || static_cast<unsigned char>(c) < ' ';
  });
  if (!bad && !pool.empty() && pool.front() == '/') return OkStatus();
  return InvalidArgument("'" + pool +
                         "' cannot be the pilots' directory: it must be an absolute path without "
                         "backslashes, percent signs and line ends");
}

Result<std::string> HeadText(const PoolConfig& config, const PilotScriptRequest& request,
                             const slurm::SbatchOptions& user) {
  std::vector<slurm::SbatchOption> options = {
      {"job-name", kPilotJobName},
      {"nodes", std::to_string(config.nodes_per_pilot)},
      {"no-kill", {}},
      {"no-requeue", {}},
      {"open-mode", "append"},
      {"output", PilotPlaces(request.pool, request.key).submission + "/slurm-%j.out"},
      {"chdir", "/"}};
  if (!user.Has({"exclusive", "oversubscribe"})) options.push_back({"exclusive", {}});
  if (!user.Has({"mem", "mem-per-cpu", "mem-per-gpu"})) options.push_back({"mem", "0"});
  if (config.time_limit_seconds > 0)
    options.push_back({"time", MinutesText(config.time_limit_seconds)});
  if (!config.partition.empty()) options.push_back({"partition", config.partition});
  if (!request.exclude.empty())
    options.push_back({"exclude", slurm::CompressHostlist(request.exclude)});
  options.insert(options.end(), user.batch().begin(), user.batch().end());
  std::string text;
  for (const slurm::SbatchOption& option : options) {
    MUSTER_ASSIGN_OR_RETURN(const std::string line, slurm::Directive(option));
    text += line + "\n";
  }
  return text;
}

std::string WorkerText(const PoolConfig& config, const PilotScriptRequest& request) {
  std::vector<std::string> words = {
      config.worker,       "--coordinator",
      request.coordinator, "--pilot",
      request.key,         "--drain-on-term=" + std::to_string(config.term_grace_seconds)};
  if (config.slots > 0) words.insert(words.end(), {"--slots", std::to_string(config.slots)});
  if (!config.interface.empty()) words.insert(words.end(), {"--interface", config.interface});
  words.insert(words.end(), config.worker_arguments.begin(), config.worker_arguments.end());
  return Words(words) + R"( --dir "$home" --node "$node" --join "$pilot/tokens/$node")";
}

std::string SrunText(const slurm::SbatchOptions& user) {
  std::string text =
      "srun --nodes=\"$SLURM_JOB_NUM_NODES\" --ntasks=\"$SLURM_JOB_NUM_NODES\" "
      "--ntasks-per-node=1 --cpu-bind=none \\\n  --no-kill --kill-on-bad-exit=0 --wait=0 \\\n";
  for (const slurm::SbatchOption& option : user.step())
    text += "  " + ShellQuoted("--" + option.name + (option.value ? "=" + *option.value : "")) +
            " \\\n";
  return text + "  bash -c \"$part\" pilot-node";
}

}  // namespace

slurm::JobPlaces PilotPlaces(const std::string& pool, const std::string& key) {
  return {pool + "/" + key, pool + "/"};
}

Result<std::string> RenderPilotScript(const PoolConfig& config, const PilotScriptRequest& request) {
  MUSTER_RETURN_IF_ERROR(CheckPool(request.pool));
  MUSTER_RETURN_IF_ERROR(slurm::CheckKey(request.key));
  MUSTER_ASSIGN_OR_RETURN(const auto user, slurm::SbatchOptions::Parse(config.options));
  MUSTER_ASSIGN_OR_RETURN(const std::string head, HeadText(config, request, user));
  std::string setup;
  for (const std::string& line : config.setup) setup += line + "\n";
  std::string body = kBody;
  // Last placeholder first: a text may contain what looks like a later one.
  body = Replaced(body, "@SRUN@", SrunText(user));
  body = Replaced(body, "@WORKER@", WorkerText(config, request));
  body = Replaced(body, "@ORPHAN@", std::to_string(config.orphan_seconds));
  body = Replaced(body, "@SETUP@", setup);
  body = Replaced(body, "@POOL@", ShellQuoted(request.pool));
  body = Replaced(body, "@PILOT@", ShellQuoted(PilotPlaces(request.pool, request.key).submission));
  return "#!/bin/bash\n# A pilot job of a Muster coordinator. docs/pilots.md explains it.\n" +
         head + body;
}

}  // namespace muster
