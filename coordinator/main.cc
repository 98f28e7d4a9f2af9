// muster-coordinator: flags, logging, one Server.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/failpoint.h"
#include "common/base/open_files.h"
#include "common/command_line/finite_numbers.h"
#include "common/command_line/help_words.h"
#include "common/command_line/version_text.h"
#include "common/runtime/exit_deadline.h"
#include "common/telemetry/log.h"
#include "coordinator/server.h"

namespace {

constexpr auto kEndsWithin = std::chrono::seconds(10);  // once it is ordered to

int Fail(const muster::Status& status) {
  muster::PrintError("muster-coordinator: " + status.message());
  return muster::ExitCodeOf(status);
}

struct CertificateSeconds {
  double nodes = 0;
  double users = 0;
};

void AddTlsOptions(CLI::App& app, muster::ServerOptions* options, CertificateSeconds* seconds) {
  app.add_option("--tls-listen", options->tls_listen,
                 "gRPC address for other machines, IP:PORT, with mutual TLS (muster init)")
      ->envname("MUSTER_TLS_LISTEN");
  app.add_option("--join-listen", options->join_listen,
                 "Address where nodes join by a token and users log in, IP:PORT")
      ->envname("MUSTER_JOIN_LISTEN");
  app.add_option("--tls-http", options->tls_http,
                 "Address of /metrics, /sd, and probes for other machines, with mutual TLS")
      ->envname("MUSTER_TLS_HTTP");
  app.add_option("--page-certificate", options->page_certificate.chain,
                 "File with the site's own certificate and who signed it (PEM), shown to browsers "
                 "that open the page at --tls-http by its names")
      ->envname("MUSTER_PAGE_CERTIFICATE");
  app.add_option("--page-key", options->page_certificate.key,
                 "File with the private key of --page-certificate (PEM)")
      ->envname("MUSTER_PAGE_KEY");
  app.add_option("--tls", options->tls,
                 "Directory with the coordinator's credentials [default: DIR/security/coordinator]")
      ->envname("MUSTER_TLS");
  const auto lifetime = [&app](const char* name, double& value, const char* help,
                               const char* variable, double most) {
    app.add_option(name, value, help)
        ->envname(variable)
        ->transform(
            CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}}))
        ->check(CLI::Range(60.0, most));
  };
  lifetime("--node-certificate-lifetime", seconds->nodes,
           "Lifetime of node certificates, such as 24h; nodes renew them before the end",
           "MUSTER_NODE_CERTIFICATE_LIFETIME", 8760 * 3600.0);
  lifetime("--user-certificate-lifetime", seconds->users,
           "Lifetime of the certificate of a login, 1h at most; muster renews it while it is used",
           "MUSTER_USER_CERTIFICATE_LIFETIME", 3600.0);
  app.add_option("--local-login", options->local_login,
                 "Path of a socket where users of this machine log in by their account; needs "
                 "--tls-listen")
      ->envname("MUSTER_LOCAL_LOGIN");
  app.add_option("--secret-keys", options->secret_keys,
                 "File with the keys of stored secrets [default: DIR/coordinator/secret-keys]")
      ->envname("MUSTER_SECRET_KEYS");
  app.add_option("--issuer-ca", options->issuer_ca,
                 "File with certificate authorities of the issuers at which users log in, besides "
                 "those of the system")
      ->envname("MUSTER_ISSUER_CA");
}

void AddMetricsOptions(CLI::App& app, muster::ServerOptions* options, double* scrape_seconds) {
  app.add_option("--file-sd", options->file_sd,
                 "File for a copy of /sd, for a Prometheus that cannot reach the coordinator")
      ->envname("MUSTER_FILE_SD");
  app.add_option("--cluster-name", options->cluster_name,
                 "Label `cluster` of all metrics [default: the name in the certificates, else the "
                 "last part of --dir]")
      ->envname("MUSTER_CLUSTER_NAME");
  app.add_option("--scrape-interval", *scrape_seconds,
                 "Scrape interval of /metrics; series of ended jobs stay for three intervals")
      ->envname("MUSTER_SCRAPE_INTERVAL")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"ms", 1e-3}, {"s", 1}, {"m", 60}}))
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
}

struct EtcdFlags {
  std::string urls;
  double lease = 0;  // seconds
};

void AddEtcdOptions(CLI::App& app, muster::ServerOptions* options, EtcdFlags* flags) {
  CLI::Option* etcd =
      app.add_option("--etcd", flags->urls,
                     "etcd for the state, where coordinators on other machines can take over: "
                     "https://HOST[:PORT],... of its members; http:// on loopback only")
          ->envname("MUSTER_ETCD")
          ->excludes("--journal")
          ->check([](const std::string& urls) {
            return muster::ParseEtcdUrls(urls).status().message();
          });
  const auto file = [&](const char* name, std::string& value, const char* help,
                        const char* variable) {
    app.add_option(name, value, help)->envname(variable)->needs(etcd);
  };
  file("--etcd-ca", options->etcd.ca, "File with the authorities of etcd's certificates",
       "MUSTER_ETCD_CA");
  file("--etcd-cert", options->etcd.certificate, "File with the certificate shown to etcd",
       "MUSTER_ETCD_CERT");
  file("--etcd-key", options->etcd.key, "File with the key of --etcd-cert", "MUSTER_ETCD_KEY");
  file("--etcd-user", options->etcd.user,
       "User of etcd [default: the common name of --etcd-cert, if etcd has users]",
       "MUSTER_ETCD_USER");
  file("--etcd-password-file", options->etcd.password_file, "File with the password of --etcd-user",
       "MUSTER_ETCD_PASSWORD_FILE");
  app.add_option("--etcd-prefix", options->etcd_prefix, "Prefix of all keys of this cluster")
      ->envname("MUSTER_ETCD_PREFIX")
      ->needs(etcd)
      ->check(muster::NotEmpty())
      ->capture_default_str();
  app.add_option("--etcd-lease", flags->lease,
                 "Time without an answer from etcd after which another coordinator may lead")
      ->envname("MUSTER_ETCD_LEASE")
      ->needs(etcd)
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"m", 60}}))
      ->check(CLI::Range(2.0, 600.0))
      ->capture_default_str();
  app.add_flag("--allow-unsafe-etcd", options->allow_unsafe_etcd,
               "Allow etcd 3.5.0 to 3.5.5, which may lose what they have acknowledged")
      ->envname("MUSTER_ALLOW_UNSAFE_ETCD")
      ->needs(etcd);
}

struct RetentionSeconds {
  double jobs = 0;
  double archive = 0;
  double lost_nodes = 0;
};

void AddRetentionOptions(CLI::App& app, RetentionSeconds* seconds) {
  const auto add = [&app](const char* name, double& value, const char* help, const char* variable) {
    app.add_option(name, value, help)
        ->envname(variable)
        ->transform(CLI::AsNumberWithUnit(
            std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}}))
        ->check(CLI::Range(0.0, 1e9))
        ->capture_default_str();
  };
  add("--retain", seconds->jobs,
      "Time that a finished job stays in memory before it is archived; 0s disables the archive",
      "MUSTER_RETAIN");
  add("--archive-retain", seconds->archive,
      "Time after its end at which an archived job is deleted; 0s keeps archived jobs",
      "MUSTER_ARCHIVE_RETAIN");
  add("--lost-node-retain", seconds->lost_nodes,
      "Time after which a lost node without jobs is forgotten; 0s keeps lost nodes",
      "MUSTER_LOST_NODE_RETAIN");
}

// kAborted: another coordinator has taken over.
muster::Status ServeOnce(muster::ServerOptions options) {
  std::optional<muster::ExitDeadline> deadline;  // outlives the server, whose end it bounds
  const bool stands_by = !options.etcd.members.empty();
  options.on_closing = [&](int exit_code) {
    const bool again = stands_by && exit_code == muster::kExitTakenOver;
    deadline.emplace(kEndsWithin, again ? muster::kExitFailed : exit_code);
  };
  muster::Result<std::unique_ptr<muster::Server>> server =
      muster::Server::Start(std::move(options));
  return server.ok() ? (*server)->Run() : server.status();
}

int Serve(const muster::ServerOptions& options) {
  const char* const failpoint = std::getenv("MUSTER_FAILPOINT");
  if (const muster::Status armed = muster::ArmFailpoint(failpoint); !armed.ok()) return Fail(armed);
  if (muster::armed_failpoint >= 0)
    muster::Log().warn("MUSTER_FAILPOINT={}: a test has this process killed there", failpoint);
  for (;;) {
    const muster::Status status = ServeOnce(options);
    if (status.ok()) return muster::kExitAsked;
    if (status.code() != muster::StatusCode::kAborted || options.etcd.members.empty())
      return Fail(status);
    muster::Log().warn("does not lead any more, and stands by: {}", status.message());
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Queue jobs, place and supervise their gangs, and commit checkpoints.",
               "muster-coordinator");
  muster::WriteHelpInWords(app);
  app.set_version_flag("--version", muster::VersionText("muster-coordinator"),
                       "Print the version and exit");
  muster::ServerOptions options;
  std::string log_level = "info";
  double lease_seconds = muster::ToSeconds(options.lease);
  CertificateSeconds certificate_seconds;
  double scrape_seconds = muster::ToSeconds(options.scrape_interval);
  double scrub_seconds = muster::ToSeconds(options.scrub_interval);
  app.add_option("--dir", options.dir, "Cluster directory")
      ->envname("MUSTER_DIR")
      ->required()
      ->check(muster::NotEmpty());
  app.add_option("--listen", options.listen, "gRPC address: 127.0.0.1:PORT or unix:PATH")
      ->envname("MUSTER_LISTEN")
      ->capture_default_str();
  app.add_option("--worker-listen", options.worker_listen,
                 "gRPC address for workers in the cluster's network namespaces, HOST:PORT")
      ->envname("MUSTER_WORKER_LISTEN");
  app.add_option("--http", options.http, "Address of /metrics, /sd, and probes")
      ->envname("MUSTER_HTTP")
      ->capture_default_str();
  AddTlsOptions(app, &options, &certificate_seconds);
  AddMetricsOptions(app, &options, &scrape_seconds);
  app.add_option(
         "--journal", options.journal,
         "Directory on a shared file system for the state, where coordinators on other nodes "
         "can take over")
      ->envname("MUSTER_JOURNAL");
  EtcdFlags etcd{.lease = muster::ToSeconds(options.etcd_lease)};
  AddEtcdOptions(app, &options, &etcd);
  app.add_option("--pilots", options.pilots,
                 "Slurm node-pool configuration [default: DIR/pilots.yaml if it exists]")
      ->envname("MUSTER_PILOTS");
  app.add_option("--lease", lease_seconds, "Time that a silent node keeps its slots")
      ->envname("MUSTER_LEASE")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"ms", 1e-3}, {"s", 1}, {"m", 60}}))
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  app.add_option("--scrub-interval", scrub_seconds,
                 "Interval between verifications of each checkpoint; 0s disables them")
      ->envname("MUSTER_SCRUB_INTERVAL")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}}))
      ->check(CLI::Range(0.0, 1e8))
      ->capture_default_str();
  RetentionSeconds retain{muster::ToSeconds(options.retain),
                          muster::ToSeconds(options.archive_retain),
                          muster::ToSeconds(options.lost_node_retain)};
  AddRetentionOptions(app, &retain);
  app.add_option("--webhook-hosts", options.webhook_hosts,
                 "Hosts to which job files may post events: HOST[:PORT],... and networks such as "
                 "10.0.0.0/8 to which their names may resolve")
      ->envname("MUSTER_WEBHOOK_HOSTS");
  app.add_flag("--webhook-proxy", options.webhook_proxy,
               "Post webhooks through https_proxy and no_proxy of the environment; addresses "
               "are not checked then")
      ->envname("MUSTER_WEBHOOK_PROXY");
  app.add_option("--record-schedules", options.record_schedules,
                 "File to which each pass of the scheduler is added, for muster schedule replay")
      ->envname("MUSTER_RECORD_SCHEDULES");
  app.add_flag("--allow-faults", options.allow_faults, "Allow muster fault to inject faults")
      ->envname("MUSTER_ALLOW_FAULTS");
  app.add_option("--log-level", log_level, "Log level: trace, debug, info, warn, or error")
      ->envname("MUSTER_LOG_LEVEL")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
    muster::CheckNumbersAreFinite(app);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? muster::kExitAsked : muster::kExitBadCommand;
  }

  muster::RaiseOpenFilesLimit();
  options.etcd_lease = muster::FromSeconds(std::floor(etcd.lease));
  if (!etcd.urls.empty()) options.etcd.members = muster::ParseEtcdUrls(etcd.urls).value();
  options.lease = muster::FromSeconds(lease_seconds);
  options.scrub_interval = muster::FromSeconds(scrub_seconds);
  options.scrape_interval = muster::FromSeconds(scrape_seconds);
  options.retain = muster::FromSeconds(retain.jobs);
  options.archive_retain = muster::FromSeconds(retain.archive);
  options.lost_node_retain = muster::FromSeconds(retain.lost_nodes);
  options.dir = std::filesystem::absolute(options.dir).lexically_normal().string();
  if (!options.file_sd.empty())
    options.file_sd = std::filesystem::absolute(options.file_sd).lexically_normal().string();
  if (certificate_seconds.nodes > 0)
    options.node_certificate_lifetime = muster::FromSeconds(certificate_seconds.nodes);
  if (certificate_seconds.users > 0)
    options.user_certificate_lifetime = muster::FromSeconds(certificate_seconds.users);
  if (!options.record_schedules.empty())
    options.record_schedules = std::filesystem::absolute(options.record_schedules).string();
  if (!options.journal.empty()) {
    options.journal = std::filesystem::absolute(options.journal).lexically_normal().string();
  }
  muster::InitLogging("coordinator", log_level);
  try {
    return Serve(options);
  } catch (const std::exception& error) {
    return Fail(muster::Internal(error.what()));
  }
}
