// up: starts a cluster on this machine.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/jobs/job_json.h"
#include "cli/local/local_cluster.h"
#include "common/base/strings.h"

namespace muster::verbs {

struct Up {
  static constexpr char kName[] = "up";
  static constexpr char kSummary[] = "Start a local cluster, or restart its missing processes";

  UpOptions options;

  void AddFlags(Flags& flags) {
    flags.Add("--nodes N", options.nodes, "Number of nodes [default: as before, or 1]")
        .Range(1, 64);
    flags
        .Add("--slots N", options.slots,
             "Slots per node; a slot holds one rank [default: as before, or one per CPU]")
        .Range(1, 1024);
    flags.Add("--listen ADDRESS", options.listen,
              "Address of the coordinator: 127.0.0.1:PORT or unix:PATH");
    flags.Add("--http ADDRESS", options.http, "Address of /metrics: 127.0.0.1:PORT");
    flags
        .Add("--webhook-hosts HOSTS", options.webhook_hosts,
             "Hosts to which job files may post events: HOST[:PORT],... [default: none]")
        .Variable("MUSTER_WEBHOOK_HOSTS");
    flags.AddYesNo("netns", options.netns,
                   "Run each node in its own network namespace; requires root [default: as before, "
                   "or no]");
    flags.AddYesNo("allow-faults", options.allow_faults,
                   "Allow muster fault to inject faults [default: as before, or no]");
    flags
        .Add("--failure-domains N", options.failure_domains,
             "Spread the nodes over N failure domains [default: as before, or none]")
        .Range(1, 64);
    flags.Add(
        "--fake-gpus FILE", options.fake_gpus,
        "File with invented GPUs of each node, for tests of placement [default: as before, or "
        "the real ones]");
    flags
        .Add("--coordinators N", options.coordinators,
             "Coordinators, 1, 3 or 5, of which one leads; for a try: one machine runs them all "
             "[default: as before, or 1]")
        .Range(1, 5);
    flags.Add("--etcd local|URL,...", options.etcd,
              "etcd for the state in place of a database: local starts as many members as "
              "coordinators [default: as before, or a database]");
    flags.Add("--log-level LEVEL", options.log_level, "Log level: debug, info, warn, or error")
        .Variable("MUSTER_LOG_LEVEL");
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_RETURN_IF_ERROR(context.client.CheckIsLocal());
    MUSTER_ASSIGN_OR_RETURN(const std::string binaries, OwnBinaryDirectory());
    MUSTER_ASSIGN_OR_RETURN(const UpReport report,
                            LocalCluster(context.client, binaries).Up(options));
    const Json json = {{"dir", context.dir()},
                       {"endpoint", report.endpoint.grpc},
                       {"http", report.endpoint.http},
                       {"coordinators", report.coordinators},
                       {"pid", report.endpoint.pid},
                       {"started", report.started},
                       {"nodes", NodeListJson(report.nodes)},
                       {"network_namespace", report.network_namespace}};
    if (PrintStructured(context.terminal.out, context.output, json, "dir")) return kExitSuccess;
    std::ostream& out = context.terminal.out;
    if (report.started.empty())
      out << "the cluster in " << context.dir() << " is already up\n";
    else
      out << "started " << Join(report.started) << "\n";
    out << "cluster      " << context.dir() << "\n";
    if (!report.coordinators.empty()) out << "addresses    " << report.coordinators << "\n";
    out << "coordinator  " << report.endpoint.grpc << " (pid " << report.endpoint.pid << ")\n"
        << "metrics      http://" << report.endpoint.http << "/metrics"
        << (report.network_namespace.empty() ? "" : " in namespace " + report.network_namespace)
        << "\n"
        << "nodes        " << report.ready << " ready\n";
    if (!report.coordinators.empty())
      out << "note         one machine runs all coordinators: for a try, not for production\n";
    out << "page         muster page --dir " << ShellWord(context.dir()) << "\n"
        << "next         muster submit FILE --dir " << ShellWord(context.dir()) << "\n";
    return kExitSuccess;
  }
};

template void AddVerb<Up>(CommandLine& line);

}  // namespace muster::verbs
