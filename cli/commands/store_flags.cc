#include "cli/commands/store_flags.h"

#include <filesystem>
#include <memory>

#include "common/base/clock.h"
#include "common/base/cluster_paths.h"

namespace muster::verbs {

void StoreFlags::AddTo(Flags& flags, bool both) {
  const Flag at_journal =
      flags.Add("--journal DIR", journal, "Directory of the journal").Variable("MUSTER_JOURNAL");
  Flag at_etcd =
      flags
          .Add("--etcd URLS", etcd, "Members of etcd: https://HOST[:PORT],...; http:// on loopback")
          .Variable("MUSTER_ETCD");
  if (!both) at_etcd.Excludes(at_journal);
  flags.Add("--etcd-ca FILE", place.access.ca, "Authorities of etcd's certificates")
      .Variable("MUSTER_ETCD_CA");
  flags.Add("--etcd-cert FILE", place.access.certificate, "Certificate shown to etcd")
      .Variable("MUSTER_ETCD_CERT");
  flags.Add("--etcd-key FILE", place.access.key, "Key of --etcd-cert").Variable("MUSTER_ETCD_KEY");
  flags
      .Add("--etcd-user NAME", place.access.user,
           "User of etcd [default: the common name of --etcd-cert, if etcd has users]")
      .Variable("MUSTER_ETCD_USER");
  flags.Add("--etcd-password-file FILE", place.access.password_file, "Password of --etcd-user")
      .Variable("MUSTER_ETCD_PASSWORD_FILE");
  flags.Add("--etcd-prefix PREFIX", place.prefix, "Prefix of all keys of the cluster")
      .Variable("MUSTER_ETCD_PREFIX");
}

Result<StorePlace> StoreFlags::Chosen(const CommandContext& context) const {
  return OfKind(!etcd.empty() ? "etcd" : !journal.empty() ? "journal" : "sqlite", context);
}

Result<StorePlace> StoreFlags::OfKind(const std::string& kind,
                                      const CommandContext& context) const {
  if (kind == "sqlite")
    return StorePlace{.kind = StorePlace::Kind::kSqlite,
                      .path = ClusterPaths{context.dir()}.Database()};
  if (kind == "journal") {
    if (journal.empty()) return InvalidArgument("a journal needs --journal DIR");
    return StorePlace{.kind = StorePlace::Kind::kJournal,
                      .path = std::filesystem::absolute(journal).lexically_normal().string()};
  }
  if (etcd.empty()) return InvalidArgument("etcd needs --etcd URLS");
  StorePlace at{.kind = StorePlace::Kind::kEtcd, .etcd = place};
  MUSTER_ASSIGN_OR_RETURN(at.etcd.access.members, ParseEtcdUrls(etcd));
  MUSTER_RETURN_IF_ERROR(CheckEtcdAccess(at.etcd.access));
  return at;
}

namespace {

constexpr Duration kEvery = std::chrono::seconds(1);

}  // namespace

StorePlace BackupAt(const std::string& file) {
  return {.kind = StorePlace::Kind::kBackup,
          .path = std::filesystem::absolute(file).lexically_normal().string()};
}

RecordsProgress ShowProgress(CommandContext& context) {
  auto next = std::make_shared<TimePoint>(SystemClock().Now() + kEvery);
  return [&context, next](std::uint64_t records) -> Status {
    if (context.interrupt().requested()) return Cancelled("interrupted; nothing was changed");
    const TimePoint now = SystemClock().Now();
    if (!context.terminal.err_is_tty || now < *next) return OkStatus();
    *next = now + kEvery;
    context.terminal.err << records << " records\n";
    return OkStatus();
  };
}

}  // namespace muster::verbs
