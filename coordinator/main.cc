// muster-coordinator: flags, logging, one Server.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/open_files.h"
#include "common/command_line/help_words.h"
#include "common/command_line/version_text.h"
#include "common/runtime/exit_deadline.h"
#include "common/telemetry/log.h"
#include "coordinator/server.h"

namespace {

constexpr auto kEndsWithin = std::chrono::seconds(10);  // once it is asked to

int Fail(const muster::Status& status) {
  std::fprintf(stderr, "muster-coordinator: %s\n", status.message().c_str());
  return muster::ExitCodeOf(status);
}

void AddTlsOptions(CLI::App& app, muster::ServerOptions* options, double* certificate_seconds) {
  app.add_option("--tls-listen", options->tls_listen,
                 "gRPC address for other machines, IP:PORT, by certificates (muster init)")
      ->envname("MUSTER_TLS_LISTEN");
  app.add_option("--join-listen", options->join_listen,
                 "Address where nodes join by a token (muster certs join-token), IP:PORT")
      ->envname("MUSTER_JOIN_LISTEN");
  app.add_option("--tls-http", options->tls_http,
                 "Address of /metrics, /healthz and /sd for other machines, by certificates")
      ->envname("MUSTER_TLS_HTTP");
  app.add_option("--tls", options->tls,
                 "The coordinator's credentials (default: DIR/security/coordinator)")
      ->envname("MUSTER_TLS");
  app.add_option("--node-certificate-lifetime", *certificate_seconds,
                 "How long a node's certificate is good for, e.g. 24h; it is renewed before")
      ->envname("MUSTER_NODE_CERTIFICATE_LIFETIME")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}}))
      ->check(CLI::Range(60.0, 8760 * 3600.0));
}

void AddMetricsOptions(CLI::App& app, muster::ServerOptions* options, double* scrape_seconds) {
  app.add_option("--file-sd", options->file_sd,
                 "Keep a copy of /sd in this file, for a Prometheus that cannot call")
      ->envname("MUSTER_FILE_SD");
  app.add_option("--cluster-name", options->cluster_name,
                 "The label `cluster` of all that is scraped (default: that of the "
                 "certificates, else the last part of --dir)")
      ->envname("MUSTER_CLUSTER_NAME");
  app.add_option("--scrape-interval", *scrape_seconds,
                 "How often /metrics is asked, e.g. 15s; what has ended stays there for three of "
                 "them")
      ->envname("MUSTER_SCRAPE_INTERVAL")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"ms", 1e-3}, {"s", 1}, {"m", 60}}))
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
}

int Serve(muster::ServerOptions options) {
  std::optional<muster::ExitDeadline> deadline;  // outlives the server, whose end it bounds
  options.on_closing = [&](int exit_code) { deadline.emplace(kEndsWithin, exit_code); };
  muster::Result<std::unique_ptr<muster::Server>> server =
      muster::Server::Start(std::move(options));
  if (!server.ok()) return Fail(server.status());
  const muster::Status status = (*server)->Run();
  return status.ok() ? 0 : Fail(status);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Queues jobs, places and supervises their gangs, and commits checkpoints.",
               "muster-coordinator");
  muster::WriteHelpInWords(app);
  app.set_version_flag("--version", muster::VersionText("muster-coordinator"),
                       "Print the version and end");
  muster::ServerOptions options;
  std::string log_level = "info";
  double lease_seconds = muster::ToSeconds(options.lease);
  double certificate_seconds = 0;
  double scrape_seconds = muster::ToSeconds(options.scrape_interval);
  double scrub_seconds = muster::ToSeconds(options.scrub_interval);
  app.add_option("--dir", options.dir, "The cluster's directory")
      ->envname("MUSTER_DIR")
      ->required();
  app.add_option("--listen", options.listen, "gRPC address: 127.0.0.1:PORT or unix:PATH")
      ->envname("MUSTER_LISTEN")
      ->capture_default_str();
  app.add_option("--worker-listen", options.worker_listen,
                 "gRPC address for workers in the cluster's network namespaces, HOST:PORT")
      ->envname("MUSTER_WORKER_LISTEN");
  app.add_option("--http", options.http, "Address of /metrics, /healthz and /sd")
      ->envname("MUSTER_HTTP")
      ->capture_default_str();
  AddTlsOptions(app, &options, &certificate_seconds);
  AddMetricsOptions(app, &options, &scrape_seconds);
  app.add_option("--journal", options.journal,
                 "Keep the state in this directory of a shared file system, where coordinators of "
                 "other nodes can take over")
      ->envname("MUSTER_JOURNAL");
  app.add_option("--pilots", options.pilots,
                 "What nodes are to be had from Slurm (default: DIR/pilots.yaml, where there is "
                 "one)")
      ->envname("MUSTER_PILOTS");
  app.add_option("--lease", lease_seconds, "How long a silent node keeps its slots, e.g. 10s")
      ->envname("MUSTER_LEASE")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"ms", 1e-3}, {"s", 1}, {"m", 60}}))
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  app.add_option("--scrub-interval", scrub_seconds,
                 "How often each committed checkpoint is read again, e.g. 6h; 0s: never")
      ->envname("MUSTER_SCRUB_INTERVAL")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}}))
      ->check(CLI::Range(0.0, 1e8))
      ->capture_default_str();
  app.add_option("--webhook-hosts", options.webhook_hosts,
                 "Hosts that job files may have events posted to: HOST[:PORT],... and networks, "
                 "10.0.0.0/8, that their names may resolve to")
      ->envname("MUSTER_WEBHOOK_HOSTS");
  app.add_flag("--webhook-proxy", options.webhook_proxy,
               "Post webhooks by the proxies of the environment, https_proxy and no_proxy; "
               "addresses are not checked then")
      ->envname("MUSTER_WEBHOOK_PROXY");
  app.add_flag("--allow-faults", options.allow_faults,
               "Cause faults when a client asks for it (muster fault)")
      ->envname("MUSTER_ALLOW_FAULTS");
  app.add_option("--log-level", log_level, "How much to log")
      ->envname("MUSTER_LOG_LEVEL")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  muster::RaiseOpenFilesLimit();
  options.lease = muster::FromSeconds(lease_seconds);
  options.scrub_interval = muster::FromSeconds(scrub_seconds);
  options.scrape_interval = muster::FromSeconds(scrape_seconds);
  options.dir = std::filesystem::absolute(options.dir).lexically_normal().string();
  if (!options.file_sd.empty())
    options.file_sd = std::filesystem::absolute(options.file_sd).lexically_normal().string();
  if (certificate_seconds > 0)
    options.node_certificate_lifetime = muster::FromSeconds(certificate_seconds);
  if (!options.journal.empty()) {
    options.journal = std::filesystem::absolute(options.journal).lexically_normal().string();
  }
  muster::InitLogging("coordinator", log_level);
  try {
    return Serve(std::move(options));
  } catch (const std::exception& error) {
    return Fail(muster::Internal(error.what()));
  }
}
