// backup and restore: a store as one file, and back.

#include "cli/base/exit_code.h"
#include "cli/commands/store_flags.h"
#include "cli/commands/verb.h"

namespace muster::verbs {
namespace {

constexpr char kBeside[] =
    "What lies beside the store is not in the file; copy it with it: DIR/security (certificates "
    "and "
    "their authority), DIR/coordinator/secret-keys (what opens stored secrets), "
    "DIR/coordinator/token, and DIR/pilots.yaml. Checkpoints and logs are in the jobs' output "
    "directories.";

Json SummaryJson(const ContentsSummary& summary) {
  return {{"jobs", summary.jobs},
          {"unfinished_jobs", summary.live_jobs},
          {"archived_jobs", summary.archived},
          {"nodes", summary.nodes},
          {"events", summary.events},
          {"audit_lines", summary.audit}};
}

std::string SummaryText(const ContentsSummary& summary) {
  return std::to_string(summary.jobs) + " jobs (" + std::to_string(summary.live_jobs) +
         " not over), " + std::to_string(summary.archived) + " archived jobs, " +
         std::to_string(summary.nodes) + " nodes, " + std::to_string(summary.events) + " events, " +
         std::to_string(summary.audit) + " lines of the audit trail";
}

}  // namespace

struct Backup {
  static constexpr char kName[] = "backup";
  static constexpr char kSummary[] =
      "Write the coordinator's state to a file, while it runs or not";

  std::string file;
  StoreFlags store;

  void AddFlags(Flags& flags) {
    flags.Add("FILE", file, "File to write; it must not be there").Required();
    store.AddTo(flags);
    flags.SetFooter(
        std::string(
            "On the coordinator's machine, as its user; with --etcd on any that reaches it. "
            "The file is one moment of the state, and neither the coordinator nor jobs wait "
            "for it. ") +
        kBeside +
        "\n\nExamples:\n"
        "  muster backup --dir /var/lib/muster /backup/muster-$(date +%F)\n"
        "  muster backup /backup/muster --etcd https://etcd1,https://etcd2 --etcd-ca ca.pem "
        "--etcd-cert cert.pem --etcd-key key.pem\n"
        "  muster store check /backup/muster-2026-11-30");
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const StorePlace place, store.Chosen(context));
    MUSTER_ASSIGN_OR_RETURN(const StoreContents contents, ReadStore(place, ShowProgress(context)));
    MUSTER_ASSIGN_OR_RETURN(const ContentsSummary summary, Summarize(contents));
    const StorePlace to = BackupAt(file);
    MUSTER_RETURN_IF_ERROR(WriteBackup(to.path, contents));
    Json json = {{"file", to.path}, {"store", place.Text()}, {"epoch", contents.epoch}};
    json.update(SummaryJson(summary));
    if (!PrintStructured(context.terminal.out, context.output, json, "file"))
      context.terminal.out << "wrote " << Printable(to.path) << ": " << SummaryText(summary)
                           << "\n";
    return kExitSuccess;
  }
};

struct Restore {
  static constexpr char kName[] = "restore";
  static constexpr char kSummary[] =
      "Put the coordinator's state back to that of a backup, with the coordinator stopped";

  std::string file;
  StoreFlags store;
  bool replace = false;

  void AddFlags(Flags& flags) {
    flags.Add("FILE", file, "File of `muster backup`").Required();
    store.AddTo(flags);
    flags.Add("--replace", replace,
              "Replace the records that the store has; an SQLite file stays as state.db.replaced");
    flags.SetFooter(
        std::string("Into a store of any kind, also of another than the backup's. It has the whole "
                    "backup or, if this is interrupted, what it had before. Workers accept the "
                    "coordinator that starts next. Unfinished jobs go on; "
                    "jobs submitted since are lost, and what runs of them is ended. ") +
        kBeside +
        "\n\nExamples:\n"
        "  systemctl stop muster-coordinator\n"
        "  muster restore --dir /var/lib/muster --replace /backup/muster-2026-11-30\n"
        "  systemctl start muster-coordinator");
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const StorePlace place, store.Chosen(context));
    MUSTER_ASSIGN_OR_RETURN(const StoreContents contents, ReadBackup(BackupAt(file).path));
    MUSTER_ASSIGN_OR_RETURN(const ContentsSummary summary, Summarize(contents));
    MUSTER_ASSIGN_OR_RETURN(
        const std::uint64_t epoch,
        RestoreStore(contents, place, replace ? IfNotEmpty::kReplace : IfNotEmpty::kRefuse,
                     ShowProgress(context)));
    Json json = {{"store", place.Text()}, {"epoch", epoch}};
    json.update(SummaryJson(summary));
    if (!PrintStructured(context.terminal.out, context.output, json, "store"))
      context.terminal.out << "restored " << Printable(place.Text()) << ": " << SummaryText(summary)
                           << ". Next: start the coordinator\n";
    return kExitSuccess;
  }
};

template void AddVerb<Backup>(CommandLine& line);
template void AddVerb<Restore>(CommandLine& line);

}  // namespace muster::verbs
