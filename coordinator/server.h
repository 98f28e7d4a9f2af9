// Server: the coordinator put together. The only place that knows every part.
//
//   gRPC services ──post──▶ EventLoop: ControllerRuntime ──▶ Store (own thread)
//   HTTP server   ──on the loop──▶ read-only views of the controller
//
// Start, Run and the destructor belong to one thread, which is the loop's thread while Run runs;
// Stop may be called from any thread. Invariant: what a client or a worker receives is durable.
// Shutdown closes the gate, ends the streams, drains, and destroys in reverse order of creation.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/rpc/endpoint.h"
#include "common/security/site_certificate.h"
#include "coordinator/store/etcd_access.h"

namespace muster {

struct ServerOptions {
  std::string dir;                     // the cluster's directory; must be absolute
  std::string listen = "127.0.0.1:0";  // gRPC: loopback HOST:PORT or unix:PATH
  std::string http = "127.0.0.1:0";    // loopback HOST:PORT
  // gRPC for the workers of a cluster in network namespaces, HOST:PORT in its hub; empty: `listen`.
  // Refused if CheckPrivateNetwork fails.
  std::string worker_listen;
  // Listeners for other machines, IP:PORT, by certificates only; empty: none. They need
  // credentials: `tls`, or those that `muster init` made in the cluster's directory.
  std::string tls_listen;   // gRPC; a client certificate is required
  std::string join_listen;  // gRPC for nodes that join, and people who log in; needs the authority
  std::string tls_http;     // metrics
  std::string tls;          // credentials directory; empty: DIR/security/coordinator
  // The site's own certificate, which browsers at `tls_http` are shown for its names.
  SiteCertificateFiles page_certificate;
  std::optional<Duration> node_certificate_lifetime;  // empty: as in DefaultLifetime
  std::optional<Duration> user_certificate_lifetime;  // of a login; empty: kUserCertificateLifetime
  // A socket where people of this machine log in by their account; empty: none.
  std::string local_login;
  std::string secret_keys;  // file with the keys of stored secrets; empty: in `dir`
  // Authorities of issuers at which users log in, PEM; empty: those of the system alone.
  std::string issuer_ca;
  // Directory of a journal on a shared file system, instead of the database in `dir`; absolute. The
  // coordinator that holds it ends with a named cause when another one takes over.
  std::string journal;
  // An etcd for the state, instead of the database in `dir`; no members: none. Start waits until
  // this coordinator has the leader key there; it ends with a named cause when it has lost it.
  EtcdAccess etcd;
  std::string etcd_prefix = "/muster/";           // with which all keys of this cluster begin
  Duration etcd_lease = std::chrono::seconds(2);  // of the leader key; whole seconds
  bool allow_unsafe_etcd = false;                 // versions that may lose what they acknowledged
  Duration lease = std::chrono::seconds(10);      // a silent node's grace before its slots are lost
  Duration scrub_interval = std::chrono::hours(6);  // each checkpoint is read again; 0: never
  // As in ControllerOptions.
  Duration retain = std::chrono::days(7);
  Duration archive_retain = std::chrono::days(365);
  Duration lost_node_retain = std::chrono::days(7);
  bool allow_faults = false;     // clients may cause faults, to rehearse them
  std::string record_schedules;  // file to which each pass of the scheduler is added; empty: none
  // Configuration of the pool of pilot jobs; empty: DIR/pilots.yaml. No pool while the file is
  // missing.
  std::string pilots;
  // Hosts to which job files may post events, as WebhookRules::Parse takes it; empty: none.
  std::string webhook_hosts;
  bool webhook_proxy = false;  // by the proxies of the environment
  std::string cluster_name;    // label of the scrape targets; empty: that of
                               // the certificates, else the last part of `dir`
  std::string file_sd;         // a copy of /sd; absolute; empty: none
  Duration scrape_interval = std::chrono::seconds(15);  // what ends is shown for three of them
  bool handle_signals = true;                           // SIGINT and SIGTERM end Run
  // Called once, on the loop, when the server begins to end, with its exit code. From then on it
  // waits for threads of its own and of gRPC's, which a dead disk may block for ever.
  std::function<void(int exit_code)> on_closing;
};

// Exit codes of muster-coordinator.
inline constexpr int kExitAsked = 0;       // asked to end
inline constexpr int kExitFailed = 1;      // failed; its last line says why
inline constexpr int kExitBadCommand = 2;  // a wrong command line
inline constexpr int kExitTakenOver = 3;   // another coordinator has taken over the journal: this
                                           // one must not be restarted beside it
// From the result of Start or Run.
int ExitCodeOf(const Status& status);

class Server {
 public:
  // Opens the store, restores the state, binds both ports and writes the endpoint file. Refused
  // while another coordinator runs in the same directory.
  static Result<std::unique_ptr<Server>> Start(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves until Stop or a signal; the status tells whether it ended because the store failed, or,
  // by kAborted, because another coordinator has taken over.
  Status Run();
  void Stop();

  const Endpoint& endpoint() const;

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
