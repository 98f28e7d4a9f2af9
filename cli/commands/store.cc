// store: the coordinator's state as it is stored.

#include "cli/base/exit_code.h"
#include "cli/commands/store_flags.h"
#include "cli/commands/verb.h"
#include "coordinator/backup/check.h"

namespace muster::verbs {
namespace {

const std::vector<std::string> kKinds = {"sqlite", "journal", "etcd"};

Json ViolationJson(const Violation& violation) {
  return {{"table", violation.table},
          {"key", TextOrNull(violation.key)},
          {"what", violation.what},
          {"next", violation.next}};
}

}  // namespace

struct StoreCheck {
  static constexpr char kName[] = "check";
  static constexpr char kSummary[] =
      "Check the records of a store or of a backup, each and against each other";

  std::string file;
  StoreFlags store;

  void AddFlags(Flags& flags) {
    flags.Add("FILE", file, "File of `muster backup` [default: the store]");
    store.AddTo(flags);
    flags.SetFooter(
        "Reads one moment of it, while its coordinator runs or not, and changes nothing. Exit code "
        "1: a record cannot be read, or does not fit to others.\n\nExamples:\n"
        "  muster store check --dir /var/lib/muster\n"
        "  muster store check /backup/muster-2026-11-30 -o json");
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(StorePlace place, store.Chosen(context));
    if (!file.empty()) place = BackupAt(file);
    MUSTER_ASSIGN_OR_RETURN(const StoreContents contents, ReadStore(place, ShowProgress(context)));
    MUSTER_ASSIGN_OR_RETURN(const std::vector<Violation> violations, CheckContents(contents));
    Json list = Json::array();
    Table table({"TABLE", "KEY", "WHAT", "NEXT"});
    for (const Violation& each : violations) {
      list.push_back(ViolationJson(each));
      table.Add({each.table, Printable(OrDash(each.key)), Printable(each.what), each.next});
    }
    const int code = violations.empty() ? kExitSuccess : kExitError;
    if (PrintStructured(context.terminal.out, context.output, list, "table")) return code;
    if (violations.empty())
      context.terminal.out << Printable(place.Text()) << ": every record fits\n";
    else
      table.Print(context.terminal.out, context.terminal.color);
    return code;
  }
};

struct StoreMigrate {
  static constexpr char kName[] = "migrate";
  static constexpr char kSummary[] =
      "Copy the coordinator's state to a store of another kind, with the coordinator stopped";

  std::string from;
  std::string to;
  StoreFlags store;
  bool replace = false;

  void AddFlags(Flags& flags) {
    flags.Add("FROM", from, "Kind of the store that is read: sqlite (that of --dir), journal, etcd")
        .Required()
        .OneOf(kKinds);
    flags.Add("TO", to, "Kind of the store that is made").Required().OneOf(kKinds);
    store.AddTo(flags, /*both=*/true);
    flags.Add("--replace", replace, "Replace the records that TO has");
    flags.SetFooter(
        "Jobs train on; start the coordinator with the flags of TO within the lease of nodes, and "
        "never again on FROM, which stays as it is. Interrupted, it leaves TO as it was, and can "
        "be "
        "repeated. Etcd gets the newest 100,000 events and audit lines."
        "\n\nExamples:\n"
        "  muster store migrate sqlite etcd --dir /var/lib/muster --etcd https://etcd1 --etcd-ca "
        "ca.pem --etcd-cert cert.pem --etcd-key key.pem\n"
        "  muster store migrate etcd sqlite --replace --dir /var/lib/muster --etcd https://etcd1 "
        "...");
  }

  CommandResult Run(CommandContext& context) const {
    if (from == to)
      return InvalidArgument("both are " + from +
                             "; muster backup and muster restore copy within a kind");
    MUSTER_ASSIGN_OR_RETURN(const StorePlace source, store.OfKind(from, context));
    MUSTER_ASSIGN_OR_RETURN(const StorePlace target, store.OfKind(to, context));
    MUSTER_ASSIGN_OR_RETURN(
        const std::uint64_t epoch,
        MigrateStore(source, target, replace ? IfNotEmpty::kReplace : IfNotEmpty::kRefuse,
                     ShowProgress(context)));
    const Json json = {{"from", source.Text()}, {"to", target.Text()}, {"epoch", epoch}};
    if (!PrintStructured(context.terminal.out, context.output, json, "to"))
      context.terminal.out << "copied " << Printable(source.Text()) << " to "
                           << Printable(target.Text())
                           << ". Next: start the coordinator there, and not on the former again\n";
    return kExitSuccess;
  }
};

template void AddVerb<StoreCheck>(CommandLine& line);
template void AddVerb<StoreMigrate>(CommandLine& line);

}  // namespace muster::verbs
