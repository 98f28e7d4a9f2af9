#include "coordinator/server.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/cluster_paths.h"
#include "common/base/failpoint.h"
#include "common/base/files.h"
#include "common/base/version.h"
#include "common/job_spec/parse.h"
#include "common/net/interfaces.h"
#include "common/process/network_namespace.h"
#include "common/rpc/token.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/loop_handle.h"
#include "common/security/credentials.h"
#include "common/security/encoding.h"
#include "common/security/enrolment.h"
#include "common/security/user_authority.h"
#include "common/slurm/allocation.h"
#include "common/slurm/submission.h"
#include "common/telemetry/http_server.h"
#include "common/telemetry/log.h"
#include "common/telemetry/metrics.h"
#include "coordinator/discovery.h"
#include "coordinator/metrics.h"
#include "coordinator/on_event/on_event_runner.h"
#include "coordinator/page/page_feeds.h"
#include "coordinator/page/page_routes.h"
#include "coordinator/pid_file.h"
#include "coordinator/pilots/pilot_runner.h"
#include "coordinator/pilots/pool_facts.h"
#include "coordinator/replay/recording.h"
#include "coordinator/schedule_recorder.h"
#include "coordinator/service/authenticator.h"
#include "coordinator/service/authorization.h"
#include "coordinator/service/certificate_rotator.h"
#include "coordinator/service/client_service.h"
#include "coordinator/service/controller_runtime.h"
#include "coordinator/service/enrol_service.h"
#include "coordinator/service/grpc_server.h"
#include "coordinator/service/job_lookup.h"
#include "coordinator/service/local_logins.h"
#include "coordinator/service/login_service.h"
#include "coordinator/service/page_sign_in.h"
#include "coordinator/service/secret_service.h"
#include "coordinator/service/standby_coordinator.h"
#include "coordinator/service/watch_hub.h"
#include "coordinator/service/worker_service.h"
#include "coordinator/store/etcd_defragmenter.h"
#include "coordinator/store/etcd_export.h"
#include "coordinator/store/etcd_roster.h"
#include "coordinator/store/etcd_store.h"
#include "coordinator/store/journal_store.h"
#include "coordinator/store/sqlite_store.h"

namespace muster {
namespace {

constexpr Duration kShutdownGrace = std::chrono::seconds(2);
constexpr Duration kFenceInterval = std::chrono::seconds(1);
constexpr std::size_t kTokenBytes = 32;
constexpr std::size_t kExports = 2;  // copies of the audit trail before it leaves etcd
constexpr std::int64_t kMaxIssuerCaBytes = 1 << 20;

bool WantsTls(const ServerOptions& options) {
  return !options.tls_listen.empty() || !options.tls_http.empty() || !options.join_listen.empty();
}

struct TlsDirectories {
  std::string credentials;
  std::string authority;  // empty: there is none, so no node can join and renewal is external
  std::vector<std::string> revocations;
};

TlsDirectories TlsDirectoriesOf(const ServerOptions& options) {
  const SecurityPaths security = ClusterPaths{options.dir}.Security();
  TlsDirectories out;
  out.credentials = options.tls.empty() ? security.CoordinatorCredentials() : options.tls;
  // With or without the authority's key, which may be on another machine: `muster certs revoke`
  // writes the first one; the second one came with credentials from another issuer.
  out.revocations = {security.RevokedCertificates(), out.credentials + "/revoked.json"};
  if (::access(security.AuthorityKey().c_str(), F_OK) == 0) out.authority = security.dir;
  return out;
}

Status CheckAddresses(const ServerOptions& options) {
  MUSTER_RETURN_IF_ERROR(CheckListenAddress(options.listen));
  MUSTER_RETURN_IF_ERROR(CheckListenAddress(options.http));
  if (IsUnixAddress(options.http))
    return InvalidArgument("--http takes HOST:PORT, not " + options.http);
  if (!options.worker_listen.empty()) MUSTER_RETURN_IF_ERROR(CheckPrivateNetwork(options.dir));
  for (const std::string& address : {options.tls_listen, options.tls_http, options.join_listen})
    if (!address.empty()) MUSTER_RETURN_IF_ERROR(CheckTlsListenAddress(address));
  if (!options.local_login.empty() && options.tls_listen.empty())
    return InvalidArgument(
        "--local-login needs --tls-listen, where the certificates that it gives count");
  if (!options.etcd.members.empty()) MUSTER_RETURN_IF_ERROR(CheckEtcdAccess(options.etcd));
  return OkStatus();
}

Status CheckPageCertificate(const ServerOptions& options) {
  const SiteCertificateFiles& files = options.page_certificate;
  if (files.chain.empty() != files.key.empty())
    return InvalidArgument("--page-certificate and --page-key go together");
  if (files.chain.empty()) return OkStatus();
  if (options.tls_http.empty())
    return InvalidArgument("--page-certificate needs --tls-http, where the page is served by TLS");
  const auto loaded = SiteCertificate::Load(files, SystemClock().UnixMillis());
  return loaded.ok() ? OkStatus() : loaded.status().WithContext("--page-certificate");
}

// Prometheus refuses its whole configuration for another name.
Status CheckFileSd(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (path.empty() || extension == ".json" || extension == ".yml" || extension == ".yaml")
    return OkStatus();
  return InvalidArgument("--file-sd " + path +
                         ": Prometheus reads files that end with .json, .yml or .yaml; name it "
                         "targets.json, say");
}

// The configuration of the listeners; made before anything listens.
struct Security {
  std::shared_ptr<Authenticator> authenticator;
  std::optional<Enrolment> enrolment;
  LoginOptions logins;
  std::string issuer_ca_pem;
  std::string clients_root;  // GrpcAddresses'
  std::string cluster;       // of the certificates; empty: none
};

Status OpenLogins(const ServerOptions& options, const std::string& ca_pem, Security* out) {
  out->logins.cluster = out->cluster;
  out->logins.ca_pem = ca_pem;
  out->logins.lifetime = options.user_certificate_lifetime.value_or(kUserCertificateLifetime);
  if (!options.issuer_ca.empty()) {
    auto authorities = ReadFile(options.issuer_ca, kMaxIssuerCaBytes);
    if (!authorities.ok()) return authorities.status().WithContext("--issuer-ca");
    out->issuer_ca_pem = *std::move(authorities);
  }
  const std::string dir = ClusterPaths{options.dir}.Security().UserAuthority();
  auto authority = UserAuthority::Open(dir, ca_pem);
  if (authority.status().code() == StatusCode::kNotFound) {
    out->logins.without_authority =
        "this cluster has no authority for logins; run 'muster init --dir " + options.dir +
        "' on the coordinator's machine, and start the coordinator again";
    return OkStatus();
  }
  if (!authority.ok()) return authority.status();
  out->clients_root = UserAuthority::RootPath(dir);
  if (options.tls_listen.empty())
    out->logins.without_authority = "the coordinator has no address for logins: --tls-listen";
  else
    out->logins.authority = *std::move(authority);
  return OkStatus();
}

Result<Security> OpenSecurity(const ServerOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(std::string token, LoadOrCreateToken(ClusterPaths{options.dir}.Token()));
  Security out;
  if (WantsTls(options)) {
    const TlsDirectories directories = TlsDirectoriesOf(options);
    const Result<Credentials> credentials = LoadCredentials(directories.credentials);
    if (!credentials.ok())
      return credentials.status().WithContext(
          "--tls-listen and --tls-http need credentials; 'muster init --dir " + options.dir +
          "' makes them, --tls names others");
    out.cluster = credentials->identity.cluster;
    MUSTER_RETURN_IF_ERROR(OpenLogins(options, credentials->ca_pem, &out));
    if (!directories.authority.empty()) {
      const Duration lifetime =
          options.node_certificate_lifetime.value_or(DefaultLifetime(Role::kNode));
      MUSTER_ASSIGN_OR_RETURN(out.enrolment, Enrolment::Open(directories.authority, lifetime));
    }
  }
  if (!options.join_listen.empty() && !out.enrolment)
    return FailedPrecondition(
        "--join-listen needs the authority, which signs nodes' certificates, in " + options.dir +
        "/security; without it 'muster certs issue' makes credentials elsewhere");
  out.authenticator = std::make_shared<Authenticator>(std::move(token), out.cluster, SystemClock());
  return out;
}

Result<std::string> OwnAddressOfHost() { return OwnAddress(InterfaceChoice{}, ""); }

// Empty: it is not known.
std::string ReachableOrNone(const std::string& bound) {
  if (bound.empty()) return "";
  const Result<std::string> address = ReachableAddress(bound, OwnAddressOfHost);
  return address.ok() ? *address : "";
}

// The address in /sd for scrapers on other machines; empty: they can reach none.
std::string PagesForOthers(const std::string& bound) {
  const Result<std::string> address = ReachableAddress(bound, OwnAddressOfHost);
  if (address.ok()) return *address;
  Log().warn(
      "/sd leaves this coordinator out, since no address is known at which other machines "
      "reach {}: {}; name one with --tls-http",
      bound, address.status().message());
  return "";
}

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

// One of the three.
struct OpenedStore {
  std::unique_ptr<EtcdRoster> roster;  // beside `etcd`
  std::unique_ptr<SqliteStore> sqlite;
  std::unique_ptr<JournalStore> journal;
  std::unique_ptr<EtcdStore> etcd;
  std::unique_ptr<EtcdExport> exported;            // with etcd
  std::unique_ptr<EtcdDefragmenter> defragmenter;  // likewise

  Store& store() const {
    if (etcd) return *etcd;
    return journal ? static_cast<Store&>(*journal) : *sqlite;
  }
  const char* kind() const { return etcd ? "etcd" : journal ? "journal" : "sqlite"; }
  std::uint64_t epoch() const {
    if (etcd) return etcd->epoch();
    return journal ? journal->epoch() : sqlite->epoch();
  }
  // What watches, while nothing is committed, whether another coordinator has taken over.
  void WatchTakeover(const Store::Done& on_taken, const std::function<void()>& on_change) const {
    if (etcd) etcd->WatchLeadership(kFenceInterval, on_taken, on_change);
    if (journal) journal->WatchFence(kFenceInterval, on_taken);
  }
};

EpochClaim ClaimOf(const ServerOptions& options) {
  return {.node = HostName(),
          .pid = ::getpid(),
          .address = options.tls_listen.empty() ? options.listen : options.tls_listen,
          .unix_ms = SystemClock().UnixMillis()};
}

StandbyCoordinatorOptions StandbyCoordinatorOptionsOf(const ServerOptions& options,
                                                      const Security& security,
                                                      const EtcdRoster& roster) {
  const TlsDirectories directories = TlsDirectoriesOf(options);
  StandbyCoordinatorOptions standby{
      .cluster = options.cluster_name,
      .grpc = {.plain = {options.listen},
               .tls = options.tls_listen,
               .join = options.join_listen,
               .credentials_dir = directories.credentials,
               .clients_root = security.clients_root},
      .authority = directories.authority,
      .node_lifetime = options.node_certificate_lifetime.value_or(DefaultLifetime(Role::kNode)),
      .roster = &roster,
      .reachable = ReachableOrNone,
      .http = options.http,
      .tls_http = options.tls_http,
      .page = options.page_certificate,
      .authenticator = security.authenticator,
      .endpoint_path = ClusterPaths{options.dir}.Endpoint()};
  if (WantsTls(options))
    standby.certificates = {directories.credentials, directories.revocations,
                            directories.authority};
  return standby;
}

Result<std::unique_ptr<EtcdExport>> StartExport(const ServerOptions& options) {
  return EtcdExport::Start({.access = options.etcd,
                            .prefix = options.etcd_prefix,
                            .dir = ClusterPaths{options.dir}.CoordinatorDir() + "/export",
                            .host = HostName(),
                            .warn = [](const std::string& text) { Log().warn("{}", text); }});
}

// While another coordinator leads, this one stands by at its own addresses.
Status OpenEtcd(const ServerOptions& options, const Security& security, OpenedStore* opened) {
  const auto lease = std::chrono::duration_cast<std::chrono::seconds>(options.etcd_lease);
  EtcdStoreOptions etcd{.access = options.etcd,
                        .prefix = options.etcd_prefix,
                        .claim = ClaimOf(options),
                        .lease_seconds = lease.count(),
                        .allow_unsafe = options.allow_unsafe_etcd,
                        .exports = kExports,
                        .note = [](const std::string& note) { Log().info("etcd: {}", note); }};
  etcd.claim.address.clear();  // it is announced once it is bound
  std::unique_ptr<StandbyCoordinator> standby;
  etcd.on_wait = [&](const EpochClaim* leader) -> Status {
    if (!opened->exported) {
      MUSTER_ASSIGN_OR_RETURN(opened->exported, StartExport(options));
    }
    if (leader != nullptr && !standby) {
      MUSTER_ASSIGN_OR_RETURN(standby, StandbyCoordinator::Listen(StandbyCoordinatorOptionsOf(
                                           options, security, *opened->roster)));
      const Endpoint& bound = standby->endpoint();
      opened->roster->Announce({.address = ReachableOrNone(bound.grpc_tls),
                                .page = ReachableOrNone(bound.http_tls),
                                .join = bound.grpc_join});
    }
    if (!standby) return OkStatus();
    standby->SetLeader(leader);
    return standby->outcome();
  };
  const auto note = etcd.note;
  MUSTER_ASSIGN_OR_RETURN(opened->etcd, EtcdStore::Open(std::move(etcd)));
  MUSTER_ASSIGN_OR_RETURN(opened->defragmenter,
                          EtcdDefragmenter::Start({.access = options.etcd, .note = note}));
  return OkStatus();
}

Result<OpenedStore> OpenStore(const ServerOptions& options, const Security& security) {
  OpenedStore opened;
  const EpochClaim claim = ClaimOf(options);
  if (!options.etcd.members.empty()) {
    MUSTER_ASSIGN_OR_RETURN(opened.roster, EtcdRoster::Open(options.etcd, options.etcd_prefix,
                                                            HostName() + ":" + options.dir));
    MUSTER_RETURN_IF_ERROR(OpenEtcd(options, security, &opened));
    return opened;
  }
  if (options.journal.empty()) {
    MUSTER_ASSIGN_OR_RETURN(
        opened.sqlite,
        SqliteStore::Open({.path = ClusterPaths{options.dir}.Database(),
                           .note = [](const std::string& note) { Log().info("{}", note); }}));
    return opened;
  }
  JournalStoreOptions journal;
  journal.journal = {.dir = options.journal,
                     .node = claim.node,
                     .pid = claim.pid,
                     .address = claim.address,
                     .unix_ms = claim.unix_ms,
                     .warn = [](const std::string& warning) { Log().warn("{}", warning); }};
  MUSTER_ASSIGN_OR_RETURN(opened.journal, JournalStore::Open(std::move(journal)));
  return opened;
}

ControllerOptions OptionsOf(const ServerOptions& options, std::uint64_t epoch,
                            const OnEventRunner& on_event, ScheduleRecorder* recorder) {
  ControllerOptions controller;
  controller.cluster = options.dir;
  controller.epoch = epoch;
  controller.lease = options.lease;
  controller.scrub_interval = options.scrub_interval;
  controller.allow_faults = options.allow_faults;
  controller.retain = options.retain;
  controller.archive_retain = options.archive_retain;
  controller.lost_node_retain = options.lost_node_retain;
  controller.new_token = [] { return ToHex(*RandomBytes(kTokenBytes)); };
  controller.check_job = [&on_event](const JobSpec& spec) { return on_event.Check(spec); };
  if (recorder != nullptr)
    controller.on_pass = std::bind_front(&ScheduleRecorder::Record, recorder);
  // Silence for a lease loses a node, so several heartbeats must fit into one.
  const auto quarter = std::chrono::duration_cast<std::chrono::milliseconds>(options.lease / 4);
  controller.heartbeat_ms =
      std::min(controller.heartbeat_ms, std::max(1, static_cast<int>(quarter.count())));
  return controller;
}

const Actor kCoordinatorActor{.kind = Actor::Kind::kSystem, .name = "coordinator"};

void LogEvent(const EventRecord& event) {
  constexpr LogLevel kLevels[] = {LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError};
  const LogLevel level = kLevels[static_cast<int>(event.severity)];
  if (event.job.empty()) {
    Log().log(level, "{}: {}", event.kind, event.message);
  } else {
    Log().log(level, "job {} g{} {}: {}", event.job.value, event.generation, event.kind,
              event.message);
  }
}

}  // namespace

// Members are destroyed from last to first: the listeners before what they use.
struct Server::Impl : EffectSink {
  Impl(ServerOptions options, Security security, LockedRecord pid_file, OpenedStore store,
       WebhookRules webhook_rules, std::unique_ptr<ScheduleRecorder> recorder);

  Status Start();
  Status ListenGrpc();
  Status ListenForLogins();
  bool PeopleLogIn() const { return !options.join_listen.empty() || !options.local_login.empty(); }
  Status StartTls();
  Status ListenHttp();
  Status AuthorizeReader(const std::string& path, const CertificateInfo* reader) const;
  PageViewer ViewerOf(const CertificateInfo& reader) const;
  void StartPilots();
  void AddPages(HttpServer& server, bool by_tls);
  PageSources SourcesOfPage();
  LogSource ReaderOfLogs();
  PageContext ListenerOfPage();
  std::vector<CoordinatorPlace> OtherCoordinators() const;
  std::string Discovery(bool by_tls) const;
  void StartDiscoveryFile();
  void Close(const Status& reason);

  void OnDecided(const Effects& effects) override;
  void OnDiskBehind(std::size_t commits, std::size_t messages) override;
  void OnUnread(const JobId& archived, const Status& status) override;
  void SendToWorker(const WorkerSend& send) override { workers.Send(send); }
  void CloseWorker(const CloseSession& close) override { workers.Close(close); }
  void OnJobsChanged(const std::vector<JobId>& jobs) override;
  void OnEvents(const std::vector<EventRecord>& events) override;
  void OnHigherEpoch(std::uint64_t epoch) override;
  void OnStoreFailed(const Status& status) override;
  void End(const Status& cause);

  const ServerOptions options;
  const ClusterPaths paths;
  const std::shared_ptr<Authenticator> authenticator;
  LockedRecord pid_file;
  EventLoop loop;
  OpenedStore store;
  Metrics metrics;
  const DiscoveryLabels discovery_labels;
  OnEventRunner on_event;
  const std::unique_ptr<ScheduleRecorder> recorder;  // empty: schedules are not recorded
  ControllerRuntime runtime;
  JobLookup jobs;
  WorkerService workers;
  WatchHub watches;
  RefusalLog refusals;
  ClientCalls calls;
  ClientService clients;
  SecretService secrets;
  EnrolService enrolment;
  IssuerLanes issuers;
  LoginService logins;
  PageSignIn sign_in;
  const std::string clients_root;
  PageFeeds page;
  std::unique_ptr<PilotRunner> pilots;
  std::unique_ptr<CertificateRotator> credentials;  // with TLS
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<HttpServer> tls_http;
  std::unique_ptr<DiscoveryFile> discovery_file;
  std::unique_ptr<GrpcServer> grpc;
  std::unique_ptr<LocalLogins> local_logins;
  Endpoint endpoint;
  std::string calls_for_others;  // the address of `--tls-listen` as other machines reach it
  std::string pages_for_others;  // the address in lists of scrape targets
  Status outcome;
  bool closing = false;
  std::thread shutdown;
};

Server::Impl::Impl(ServerOptions options_in, Security security, LockedRecord pid_file_in,
                   OpenedStore store_in, WebhookRules webhook_rules,
                   std::unique_ptr<ScheduleRecorder> recorder_in)
    : options(std::move(options_in)),
      paths{options.dir},
      authenticator(std::move(security.authenticator)),
      pid_file(std::move(pid_file_in)),
      store(std::move(store_in)),
      metrics(3 * options.scrape_interval),
      discovery_labels(LabelsOfEnvironment(options.cluster_name)),
      on_event(loop, {.rules = std::move(webhook_rules), .may_use_proxy = options.webhook_proxy}),
      recorder(std::move(recorder_in)),
      runtime(MakeLoopHandle(loop), store.store(), *this,
              OptionsOf(options, store.epoch(), on_event, recorder.get()), SystemClock()),
      jobs(loop, runtime.controller(), store.store()),
      workers(loop, *authenticator, runtime),
      watches(loop, runtime),
      refusals(runtime, SystemClock()),
      calls({loop, runtime, *authenticator, refusals}),
      clients({loop, runtime, store.store(), jobs, watches, workers, *authenticator, calls,
               [this](const JobId& job) { return pilots->PendingFor(job); }, store.kind()},
              options.dir),
      secrets({loop, runtime, *authenticator, calls, refusals},
              SecretVault(options.secret_keys.empty() ? paths.SecretKeys() : options.secret_keys,
                          options.cluster_name)),
      enrolment(std::move(security.enrolment)),
      issuers(std::move(security.issuer_ca_pem)),
      logins({loop, runtime, *authenticator, refusals, issuers}, std::move(security.logins)),
      sign_in({loop, runtime, *authenticator, refusals, issuers},
              options.user_certificate_lifetime.value_or(kUserCertificateLifetime)),
      clients_root(std::move(security.clients_root)),
      page(loop, SourcesOfPage()) {
  endpoint.page_key = ToHex(*RandomBytes(kTokenBytes));
}

Status Server::Impl::Start() {
  MUSTER_RETURN_IF_ERROR(runtime.Restore());
  authenticator->SetHasUsers(runtime.controller().Users().users->in_force());
  authenticator->OnRefusal([this](RequestNoted refusal) {
    if (!refusals.MayWait()) return;
    loop.Post(
        [this, refusal = std::move(refusal)]() mutable { refusals.Noted(std::move(refusal)); });
  });
  MUSTER_RETURN_IF_ERROR(StartTls());
  Failpoint("start.tls");
  MUSTER_RETURN_IF_ERROR(ListenHttp());
  MUSTER_RETURN_IF_ERROR(ListenGrpc());
  Failpoint("start.listening");
  endpoint.pid = ::getpid();
  endpoint.epoch = store.epoch();
  if (store.etcd) {
    store.etcd->leadership().Announce(calls_for_others, pages_for_others);
    store.roster->Announce(
        {.address = calls_for_others, .page = pages_for_others, .join = endpoint.grpc_join});
  }
  store.WatchTakeover([this](const Status& taken) { loop.Post([this, taken] { End(taken); }); },
                      [this] { loop.Post([this] { runtime.OnStoreChanged(); }); });
  if (!options.worker_listen.empty()) {
    const Endpoint workers_endpoint{.grpc = grpc->addresses().back(),
                                    .http = endpoint.http,
                                    .pid = endpoint.pid,
                                    .epoch = endpoint.epoch};
    MUSTER_RETURN_IF_ERROR(WriteEndpoint(paths.WorkersEndpoint(), workers_endpoint));
  }
  StartPilots();
  StartDiscoveryFile();
  MUSTER_RETURN_IF_ERROR(WriteEndpoint(paths.Endpoint(), endpoint));
  Failpoint("start.serving");
  return OkStatus();
}

// Nodes from Slurm, for a permanent coordinator. A coordinator in an allocation has no such file.
void Server::Impl::StartPilots() {
  PilotRunnerOptions pool{.dir = options.dir,
                          .config_file = options.pilots.empty() ? paths.Pilots() : options.pilots,
                          .status_file = paths.PilotsStatus(),
                          .coordinator = endpoint.grpc_tls,
                          .join_address = endpoint.grpc_join,
                          .security_dir = TlsDirectoriesOf(options).authority,
                          .user = slurm::CurrentUser(),
                          .environment = slurm::CurrentEnvironment()};
  PilotHooks hooks{.facts = [this] { return ReadPoolFacts(runtime.controller()); },
                   .drain =
                       [this](const DrainPoolNode& drain) {
                         runtime.Ask(DrainRequested{.actor = kCoordinatorActor,
                                                    .node = {drain.node},
                                                    .by_seconds = drain.by_seconds,
                                                    .reason = drain.why,
                                                    .cause = DrainCause::kPilot},
                                     [](const Reply& reply) {
                                       if (!reply.status.ok())
                                         Log().warn("pilots: {}", reply.status.message());
                                     });
                       },
                   .note = [this](const ClusterNote& note) { runtime.Handle(note); },
                   .declare = [this](const PoolDeclared& declared) { runtime.Handle(declared); }};
  // Before it is read nothing is refused for want of such a node.
  if (::access(pool.config_file.c_str(), F_OK) == 0) runtime.Handle(PoolDeclared{});
  pilots = std::make_unique<PilotRunner>(loop, std::move(pool), std::move(hooks));
  pilots->Start();
}

// Before the ports: the first handshake must show a valid certificate, and check revocations.
Status Server::Impl::StartTls() {
  if (!WantsTls(options)) return OkStatus();
  const TlsDirectories directories = TlsDirectoriesOf(options);
  CertificateRotatorOptions rotator{directories.credentials, directories.revocations,
                                    directories.authority};
  rotator.on_look = [this] {
    workers.CloseRevoked();
    watches.CloseRevoked(*authenticator);
  };
  rotator.on_another_authority = [this](const Status& replaced) { End(replaced); };
  credentials = std::make_unique<CertificateRotator>(loop, *authenticator, std::move(rotator));
  return credentials->Start();
}

Status Server::Impl::ListenHttp() {
  HostPort address = SplitAddress(options.http);
  MUSTER_ASSIGN_OR_RETURN(http, HttpServer::Listen(loop, address.host, address.port));
  address.port = http->port();
  endpoint.http = JoinAddress(address);
  AddPages(*http, /*by_tls=*/false);
  if (options.tls_http.empty()) return OkStatus();
  HostPort outside = SplitAddress(options.tls_http);
  HttpTlsOptions tls{
      .credentials_dir = TlsDirectoriesOf(options).credentials,
      .authorize = [this](const std::string& path,
                          const CertificateInfo* peer) { return AuthorizeReader(path, peer); },
      .find_session = [this](std::string_view session) { return sign_in.Find(session); },
      .site = options.page_certificate};
  MUSTER_ASSIGN_OR_RETURN(tls_http,
                          HttpServer::ListenTls(loop, outside.host, outside.port, std::move(tls)));
  outside.port = tls_http->port();
  endpoint.http_tls = JoinAddress(outside);
  pages_for_others = PagesForOthers(endpoint.http_tls);
  AddPages(*tls_http, /*by_tls=*/true);
  sign_in.AddRoutes(*tls_http);
  return OkStatus();
}

// Every user with a role may read; what each then sees is ViewerOf's.
Status Server::Impl::AuthorizeReader(const std::string& path, const CertificateInfo* reader) const {
  MUSTER_RETURN_IF_ERROR(
      AuthorizePage(path, reader == nullptr ? Caller::kNobody : CallerOf(reader->identity.role)));
  if (reader == nullptr) return OkStatus();
  MUSTER_RETURN_IF_ERROR(authenticator->CheckRevoked(*reader));
  if (reader->identity.role != Role::kUser || MayGet(path, Caller::kNobody)) return OkStatus();
  return runtime.controller().access().Check(ActorOf(reader->identity), ClientOperation::kListJobs);
}

PageViewer Server::Impl::ViewerOf(const CertificateInfo& reader) const {
  const Actor actor = ActorOf(reader.identity);
  JobFilter sees = JobsSeenBy(runtime.controller(), actor);
  return {.user = sees ? actor.name : "", .sees = std::move(sees)};
}

void Server::Impl::AddPages(HttpServer& server, bool by_tls) {
  for (const char* path : {"/healthz", "/livez"})
    server.Handle(path, [](const std::string&) { return HttpResponse{.body = "ok\n"}; });
  server.Handle("/readyz", [this](const std::string&) {
    if (store.store().IsCurrent()) return HttpResponse{.body = "ok\n"};
    return HttpResponse{.status = 503, .body = "no member of etcd has confirmed the lease\n"};
  });
  server.Handle("/metrics", [this](const std::string&) {
    const EdgeFigures edges{
        workers.streams(),          watches.watchers(),
        runtime.pending_requests(), runtime.refused_requests() + calls.refused(),
        on_event.totals(),          credentials ? credentials->not_after_ms() : 0,
        pilots->counts(),           DroppedLogLines()};
    const Now now{SystemClock().Now(), SystemClock().UnixMillis()};
    return HttpResponse{.content_type = kMetricsContentType,
                        .body = metrics.Render(runtime.controller(), edges, now)};
  });
  server.Handle("/sd", [this, by_tls](const std::string&) {
    return HttpResponse{.content_type = "application/json", .body = Discovery(by_tls)};
  });
  AddPageRoutes(server, ListenerOfPage());
}

PageSources Server::Impl::SourcesOfPage() {
  return {.controller = runtime.controller(),
          .cluster = options.cluster_name,
          .find_job = [this](const std::string& job,
                             auto found) { jobs.Find(job, {}, std::move(found)); },
          .after_durable = [this](auto done) { runtime.AfterDurable(std::move(done)); },
          .now =
              [] {
                return Now{SystemClock().Now(), SystemClock().UnixMillis()};
              },
          .read_log = ReaderOfLogs()};
}

LogSource Server::Impl::ReaderOfLogs() {
  return [this](const LogLocation& location, int rank, std::int64_t offset,
                const std::function<void(Result<LogBytes>)>& done) {
    workers.ReadLog(location, rank, offset,
                    [done, final = location.final](Result<v1::LogChunk> chunk) {
                      if (!chunk.ok()) return done(chunk.status());
                      done(LogBytes{.data = std::move(*chunk->mutable_data()),
                                    .next_offset = chunk->next_offset(),
                                    .at_end = chunk->at_end(),
                                    .final = final,
                                    .path = chunk->path()});
                    });
  };
}

PageContext Server::Impl::ListenerOfPage() {
  return {.key = endpoint.page_key,
          .controller = runtime.controller(),
          .viewer_of = [this](const CertificateInfo& reader) { return ViewerOf(reader); },
          .find_job = [this](const std::string& job, JobFilter filter,
                             auto found) { jobs.Find(job, std::move(filter), std::move(found)); },
          .feeds = page,
          .read_log = ReaderOfLogs()};
}

std::vector<CoordinatorPlace> Server::Impl::OtherCoordinators() const {
  if (!store.roster) return {};
  std::vector<CoordinatorPlace> places = store.roster->All();
  if (!places.empty()) places.erase(places.begin());  // its own
  return places;
}

std::string Server::Impl::Discovery(bool by_tls) const {
  std::vector<std::string> coordinators{by_tls ? pages_for_others : endpoint.http};
  if (by_tls)
    for (const CoordinatorPlace& place : OtherCoordinators()) coordinators.push_back(place.page);
  return ServiceDiscovery(runtime.controller(), coordinators, by_tls, discovery_labels);
}

// Scrapers are on another machine if there is a listener for those.
void Server::Impl::StartDiscoveryFile() {
  if (options.file_sd.empty()) return;
  discovery_file = std::make_unique<DiscoveryFile>(
      loop, options.file_sd, [this] { return Discovery(!options.tls_http.empty()); });
  discovery_file->Start();
}

Status Server::Impl::ListenGrpc() {
  GrpcAddresses addresses{.plain = {options.listen},
                          .tls = options.tls_listen,
                          .join = options.join_listen,
                          .credentials_dir = TlsDirectoriesOf(options).credentials,
                          .clients_root = clients_root};
  if (!options.worker_listen.empty()) addresses.plain.push_back(options.worker_listen);
  GrpcServices services{.services = {&clients, &workers, &enrolment, &secrets},
                        .join = MakeJoinService(enrolment, logins),
                        .authenticator = authenticator};
  MUSTER_ASSIGN_OR_RETURN(grpc, GrpcServer::Listen(addresses, std::move(services)));
  endpoint.grpc = grpc->addresses().front();
  endpoint.grpc_tls = grpc->tls_address();
  if (!endpoint.grpc_tls.empty()) {
    const auto calls = ReachableAddress(endpoint.grpc_tls, OwnAddressOfHost);
    if (!calls.ok() && (store.etcd || PeopleLogIn()))
      return calls.status().WithContext("--tls-listen: name an address of this host");
    calls_for_others = calls.ok() ? *calls : "";
  }
  if (!options.join_listen.empty()) {
    // Tokens contain it, so it is the address that nodes reach.
    const auto join = ReachableAddress(grpc->join_address(), OwnAddressOfHost);
    if (!join.ok()) return join.status().WithContext("--join-listen: name an address of this host");
    endpoint.grpc_join = *join;
  }
  return ListenForLogins();
}

Status Server::Impl::ListenForLogins() {
  if (!PeopleLogIn() || endpoint.grpc_tls.empty()) return OkStatus();
  logins.SetPlaces([this] {
    LoginService::Places places{calls_for_others, endpoint.grpc_join};
    const auto add = [](const std::string& address, std::string* list) {
      if (!address.empty()) *list += (list->empty() ? "" : ",") + address;
    };
    for (const CoordinatorPlace& place : OtherCoordinators()) {
      add(place.address, &places.calls);
      add(place.join, &places.logins);
    }
    return places;
  });
  if (options.local_login.empty()) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(local_logins, LocalLogins::Listen(loop, logins, options.local_login));
  return OkStatus();
}

// The log has the same timeline as the events.
void Server::Impl::OnDecided(const Effects& effects) {
  for (const Observation& observation : effects.observations) metrics.Observe(observation);
  for (const StoreOperation& operation : effects.store) {
    if (std::holds_alternative<PutUsers>(operation)) authenticator->SetHasUsers(true);
    if (const auto* append = std::get_if<AppendEvent>(&operation)) LogEvent(append->event);
  }
}

void Server::Impl::OnDiskBehind(std::size_t commits, std::size_t messages) {
  Log().warn(
      "{} changes and {} messages to workers wait for the disk; nothing is decided until it has "
      "caught up",
      commits, messages);
}

void Server::Impl::OnUnread(const JobId& archived, const Status& status) {
  Log().warn("archived job {} cannot be read from the store: {}", archived.value,
             status.ToString());
}

void Server::Impl::OnJobsChanged(const std::vector<JobId>& jobs) {
  watches.OnJobsChanged(jobs);
  page.OnJobsChanged(jobs);
}

void Server::Impl::OnEvents(const std::vector<EventRecord>& events) {
  page.OnEvents();
  for (const EventRecord& event : events) {
    if (event.job.empty()) continue;
    jobs.Find(event.job.value, {}, [this, event](const Result<JobView>& job) {
      if (!job.ok()) return;
      if (!job->archived) return on_event.Offer(*job->spec, event);
      const Result<JobSpec> spec = ParseJobSpec(job->record->spec_yaml);
      if (spec.ok()) on_event.Offer(*spec, event);
    });
  }
}

// A journal was claimed by the coordinator of that epoch, which the next commit shows.
void Server::Impl::OnHigherEpoch(std::uint64_t epoch) {
  Log().warn("a node has served a coordinator of epoch {}, and this one has {}", epoch,
             store.epoch());
  if (store.etcd) store.etcd->leadership().RaiseEpoch(epoch);
}

void Server::Impl::OnStoreFailed(const Status& status) {
  End(status.WithContext("the state could not be written, so nothing more is decided"));
}

void Server::Impl::End(const Status& cause) {
  if (!outcome.ok()) return;
  outcome = cause;
  Log().critical("{}", outcome.message());
  // Posted: the caller's remaining work must find everything in place.
  loop.Post([this] { Close(Unavailable(outcome.message())); });
}

// Refuses what comes, ends what is under way, lets gRPC drain while the loop still runs, and stops.
void Server::Impl::Close(const Status& reason) {
  if (std::exchange(closing, true)) return;
  Log().info("shutting down: {}", reason.message());
  Failpoint("end.begun");
  if (options.on_closing) options.on_closing(ExitCodeOf(outcome));
  runtime.Close(reason);
  watches.CloseAll(reason);
  page.CloseAll();
  workers.CloseAll(reason);
  enrolment.Close(reason);
  logins.Close(reason);
  sign_in.Close();
  issuers.Cancel();
  shutdown = std::thread([this] {
    grpc->Shutdown(kShutdownGrace);
    Failpoint("end.drained");
    loop.Stop();
  });
}

int ExitCodeOf(const Status& status) {
  if (status.ok()) return kExitAsked;
  return status.code() == StatusCode::kAborted ? kExitTakenOver : kExitFailed;
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  // gRPC waits for its calls, and only a running loop finishes them.
  if (impl_->grpc && !impl_->closing) {
    impl_->Close(Unavailable("the coordinator is shutting down"));
    impl_->loop.Run();
  }
  if (impl_->shutdown.joinable()) impl_->shutdown.join();
}

Result<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  MUSTER_RETURN_IF_ERROR(CheckAddresses(options));
  MUSTER_RETURN_IF_ERROR(CheckFileSd(options.file_sd));
  MUSTER_RETURN_IF_ERROR(CheckPageCertificate(options));
  Result<WebhookRules> parsed_rules = WebhookRules::Parse(options.webhook_hosts);
  if (!parsed_rules.ok()) return parsed_rules.status().WithContext("--webhook-hosts");
  WebhookRules webhook_rules = *std::move(parsed_rules);
  const ClusterPaths paths{options.dir};
  MUSTER_RETURN_IF_ERROR(MakeDirectories(paths.CoordinatorDir(), 0700));
  MUSTER_ASSIGN_OR_RETURN(LockedRecord pid_file, AcquirePidFile(paths.CoordinatorPid()));
  Failpoint("start.locked");
  // The file of the previous process would send clients to another program's port.
  ::unlink(paths.Endpoint().c_str());
  ::unlink(paths.WorkersEndpoint().c_str());
  MUSTER_ASSIGN_OR_RETURN(Security security, OpenSecurity(options));
  Failpoint("start.security");
  if (options.cluster_name.empty()) options.cluster_name = security.cluster;
  if (options.cluster_name.empty())
    options.cluster_name = std::filesystem::path(options.dir).filename().string();
  MUSTER_ASSIGN_OR_RETURN(OpenedStore store, OpenStore(options, security));
  std::unique_ptr<ScheduleRecorder> recorder;
  if (const std::string& file = options.record_schedules; !file.empty()) {
    auto opened = ScheduleRecorder::Open(file, kMaxRecordingBytes);
    if (!opened.ok()) return opened.status().WithContext("--record-schedules");
    recorder = *std::move(opened);
  }
  auto impl =
      std::make_unique<Impl>(std::move(options), std::move(security), std::move(pid_file),
                             std::move(store), std::move(webhook_rules), std::move(recorder));
  std::unique_ptr<Server> server(new Server(std::move(impl)));
  MUSTER_RETURN_IF_ERROR(server->impl_->Start());
  Log().info("muster-coordinator {} listens on {}, http://{}", kVersion, server->endpoint().grpc,
             server->endpoint().http);
  for (const std::string& address :
       {server->endpoint().grpc_tls, server->endpoint().http_tls, server->endpoint().grpc_join})
    if (!address.empty()) Log().info("for other machines, by TLS: {}", address);
  return server;
}

Status Server::Run() {
  if (impl_->options.handle_signals) {
    impl_->loop.OnTerminationSignal(
        [this](int) { impl_->Close(Unavailable("the coordinator is shutting down")); });
  }
  impl_->loop.Run();
  return impl_->outcome;
}

void Server::Stop() {
  impl_->loop.Post([this] { impl_->Close(Unavailable("the coordinator is shutting down")); });
}

const Endpoint& Server::endpoint() const { return impl_->endpoint; }

}  // namespace muster
