#include "common/job_spec/torchrun_table.h"

#include <algorithm>

namespace muster {
namespace {

using enum TorchrunTreatment;

constexpr std::size_t kHelpColumn = 34;  // as of the options above it

constexpr std::string_view kOwnRendezvous =
    "Muster's coordinator brings the ranks together; no endpoint is needed";
constexpr std::string_view kOwnEvents = "Muster has a timeline of its own: 'muster events JOB'";
constexpr std::string_view kOneLog =
    "Muster keeps what a rank prints in one file, where lines are not sorted by a filter; search "
    "'muster logs JOB'";

constexpr TorchrunFlag kFlags[] = {
    {.name = "nnodes", .otherwise = "1:1", .why = "nodes, N or LEAST:MOST"},
    {.name = "nproc-per-node",
     .otherwise = "1",
     .why = "ranks on each: a number, gpu, cpu or auto"},
    {.name = "rdzv-backend", .otherwise = "static", .treatment = kNoted, .why = kOwnRendezvous},
    {.name = "rdzv-endpoint", .treatment = kNoted, .why = kOwnRendezvous},
    {.name = "rdzv-id", .otherwise = "none", .why = "the job's name"},
    {.name = "rdzv-conf", .treatment = kNoted, .why = kOwnRendezvous},
    {.name = "standalone",
     .has_value = false,
     .why = "on a cluster of its own, of this machine, which ends with the script"},
    {.name = "max-restarts", .otherwise = "0", .why = "attempts after the first one that may fail"},
    {.name = "monitor-interval",
     .otherwise = "0.1",
     .treatment = kNoted,
     .why = "Muster hears of an exit when it happens and asks for nothing in intervals"},
    {.name = "start-method",
     .otherwise = "spawn",
     .treatment = kNoted,
     .why = "every rank is a program of its own; nothing is forked from a Python process"},
    {.name = "event-log-handler", .otherwise = "null", .treatment = kRefused, .why = kOwnEvents},
    {.name = "role",
     .otherwise = "default",
     .treatment = kRefused,
     .why = "a job of Muster has one role; leave the flag out"},
    {.name = "module", .letter = 'm', .has_value = false, .why = "SCRIPT is a Python module"},
    {.name = "no-python", .has_value = false, .why = "SCRIPT is a program, not a file for Python"},
    {.name = "run-path",
     .has_value = false,
     .why = "SCRIPT is a file for Python, also beside --no-python"},
    {.name = "log-dir", .why = "a folder for a link to the ranks' logs"},
    {.name = "redirects",
     .letter = 'r',
     .otherwise = "0",
     .why = "3: to files alone, not to the terminal; also by rank, 0:3,1:0"},
    {.name = "tee",
     .letter = 't',
     .otherwise = "0",
     .why = "3: to files and the terminal; also by rank"},
    {.name = "local-ranks-filter", .why = "show what these local ranks print, such as 0,1"},
    {.name = "duplicate-stdout-filters", .treatment = kRefused, .why = kOneLog},
    {.name = "duplicate-stderr-filters", .treatment = kRefused, .why = kOneLog},
    {.name = "node-rank",
     .otherwise = "0",
     .why = "0, since one call starts the ranks of all nodes"},
    {.name = "master-addr",
     .otherwise = "127.0.0.1",
     .treatment = kNoted,
     .why = "Muster takes the address of the node that rank 0 is placed on"},
    {.name = "master-port",
     .otherwise = "29500",
     .treatment = kNoted,
     .why = "Muster takes a port that is free on the node that rank 0 is placed on"},
    {.name = "local-addr",
     .treatment = kNoted,
     .why = "the address of a node is its worker's: muster-worker --address"},
    {.name = "logs-specs",
     .has_variable = false,
     .treatment = kRefused,
     .why = "a Python plug-in cannot be loaded here; ranks' logs are files, 'muster logs' reads "
            "them"},
    {.name = "numa-binding",
     .has_variable = false,
     .treatment = kRefused,
     .why = "how ranks are bound to cores is the worker's matter; leave the flag out"},
    {.name = "signals-to-handle",
     .otherwise = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     .treatment = kRefused,
     .why = "ranks get SIGTERM when the job is to end or to save ('muster suspend'), and no other "
            "signal is passed on"},
    {.name = "virtual-local-rank",
     .has_value = false,
     .treatment = kRefused,
     .why = "LOCAL_RANK counts the ranks of a node here, and all its GPUs are visible to each"},
};

// "-m,--module", and what stands in the place of its value.
std::string NameText(const TorchrunFlag& flag) {
  std::string text = flag.letter != 0 ? std::string("-") + flag.letter + ",--" : "--";
  text += flag.name;
  return flag.has_value ? text + " VALUE" : text;
}

std::string LinesOf(TorchrunTreatment treatment) {
  std::string lines;
  for (const TorchrunFlag& flag : kFlags) {
    if (flag.treatment != treatment) continue;
    std::string line = "  " + NameText(flag);
    if (line.size() + 2 > kHelpColumn)
      line += "\n" + std::string(kHelpColumn, ' ');
    else
      line.resize(kHelpColumn, ' ');
    line += flag.why;
    if (!flag.otherwise.empty()) line += " [" + std::string(flag.otherwise) + "]";
    lines += line + "\n";
  }
  return lines;
}

}  // namespace

std::span<const TorchrunFlag> TorchrunFlagTable() { return kFlags; }

std::string TorchrunHelp() {
  std::string help = "torchrun's flags, which stand before SCRIPT:\n";
  help += LinesOf(kTaken);
  help += "Accepted, for Muster does it by itself:\n" + LinesOf(kNoted);
  help += "Refused, unless they say what torchrun does without them:\n" + LinesOf(kRefused);
  return help;
}

}  // namespace muster
