#include "common/job_spec/torchrun_table.h"

namespace muster {
namespace {

using enum TorchrunTreatment;

constexpr std::string_view kOwnRendezvous =
    "Muster's coordinator brings the ranks together; no endpoint is needed";
constexpr std::string_view kOwnEvents = "Muster has a story of its own: 'muster events JOB'";
constexpr std::string_view kOneLog =
    "Muster keeps what a rank prints in one file, where lines are not sorted by a filter; search "
    "'muster logs JOB'";

constexpr TorchrunFlag kFlags[] = {
    {.name = "nnodes", .otherwise = "1:1"},
    {.name = "nproc-per-node", .otherwise = "1"},
    {.name = "rdzv-backend", .otherwise = "static", .treatment = kNoted, .why = kOwnRendezvous},
    {.name = "rdzv-endpoint", .treatment = kNoted, .why = kOwnRendezvous},
    {.name = "rdzv-id", .otherwise = "none"},
    {.name = "rdzv-conf", .treatment = kNoted, .why = kOwnRendezvous},
    {.name = "standalone", .has_value = false},
    {.name = "max-restarts", .otherwise = "0"},
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
    {.name = "module", .letter = 'm', .has_value = false},
    {.name = "no-python", .has_value = false},
    {.name = "run-path", .has_value = false},
    {.name = "log-dir"},
    {.name = "redirects", .letter = 'r', .otherwise = "0"},
    {.name = "tee", .letter = 't', .otherwise = "0"},
    {.name = "local-ranks-filter"},
    {.name = "duplicate-stdout-filters", .treatment = kRefused, .why = kOneLog},
    {.name = "duplicate-stderr-filters", .treatment = kRefused, .why = kOneLog},
    {.name = "node-rank", .otherwise = "0"},
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

}  // namespace

std::span<const TorchrunFlag> TorchrunFlagTable() { return kFlags; }

}  // namespace muster
