#include "coordinator/service/standby_coordinator.h"

#include <unistd.h>

#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "common/base/version.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/leader.h"
#include "common/runtime/event_loop.h"
#include "common/security/enrolment.h"
#include "common/telemetry/http_server.h"
#include "common/telemetry/log.h"
#include "common/telemetry/metrics.h"
#include "common/wire/codec.h"
#include "coordinator/service/authenticator.h"
#include "coordinator/service/authorization.h"
#include "coordinator/service/enrol_service.h"
#include "muster/v1/client_api.pb.h"

namespace muster {
namespace {

constexpr Duration kGrace = std::chrono::milliseconds(200);
constexpr char kVersionMethod[] = "/muster.v1.Client/Version";
// What a standby coordinator has itself; all else is the leader's.
constexpr std::string_view kOwnPages[] = {"/metrics", "/healthz", "/livez", "/readyz"};

bool IsOwnPage(std::string_view path) {
  return std::ranges::find(kOwnPages, path) != std::end(kOwnPages);
}

// Who leads, for the threads that answer.
class LeaderNote {
 public:
  void Set(const EpochClaim* leader) {
    const std::lock_guard lock(mutex_);
    leader_ = leader == nullptr ? std::nullopt : std::optional(*leader);
  }
  std::optional<EpochClaim> Get() const {
    const std::lock_guard lock(mutex_);
    return leader_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<EpochClaim> leader_;
};

// For kLeaderKey.
std::string MetadataOf(const std::optional<EpochClaim>& leader) {
  if (!leader || !leader->ready) return kNoneLeads;
  return leader->address.empty() ? kLeadsElsewhere : leader->address;
}

std::string TextOf(const std::optional<EpochClaim>& leader) {
  std::string text = "this coordinator stands by; ";
  if (!leader) return text + "no other one leads at the moment";
  text += "that of " + leader->Text();
  return text + (leader->ready ? " leads" : ", which leads, is still reading its state");
}

class Answer final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Answer(const grpc::Status& refusal) { Finish(refusal); }
  explicit Answer(const std::string& message) {
    const grpc::Slice slice(message);
    message_ = grpc::ByteBuffer(&slice, 1);
    StartWriteAndFinish(&message_, {}, grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer message_;
};

// Answers every method, on gRPC's threads.
class StandbyCalls final : public grpc::CallbackGenericService {
 public:
  StandbyCalls(const LeaderNote& leader, const Authenticator& authenticator, std::string cluster)
      : leader_(leader), authenticator_(authenticator), cluster_(std::move(cluster)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (const grpc::Status status = authenticator_.Check(*context); !status.ok())
      return new Answer(status);
    const std::optional<EpochClaim> leader = leader_.Get();
    if (context->method() == kVersionMethod) return new Answer(Version(leader));
    context->AddTrailingMetadata(kLeaderKey, MetadataOf(leader));
    std::string refusal = TextOf(leader);
    if (leader && leader->ready && !leader->address.empty())
      refusal += "\n  next: muster --coordinator " + leader->address + " --tls DIR ...";
    return new Answer(ToGrpcStatus(Unavailable(refusal)));
  }

 private:
  std::string Version(const std::optional<EpochClaim>& leader) const {
    v1::VersionResponse response;
    response.set_version(kVersion);
    response.set_protocol_version(kProtocolVersion);
    response.set_cluster(cluster_);
    response.set_stands_by(true);
    if (leader) response.set_leader(leader->address);
    for (const NamedVersions& row : OwnVersions()) *response.add_versions() = ToProto(row);
    return response.SerializeAsString();
  }

  const LeaderNote& leader_;
  const Authenticator& authenticator_;
  const std::string cluster_;
};

}  // namespace

struct StandbyCoordinator::Impl {
  explicit Impl(StandbyCoordinatorOptions options_in)
      : options(std::move(options_in)), calls(leader, *options.authenticator, options.cluster) {}

  Status Start();
  Status ListenGrpc();
  grpc::Status RefuseLogin(grpc::CallbackServerContext& context) const;
  Status ListenHttp();
  void AddPages(HttpServer& server);
  Status Authorize(const std::string& path, const CertificateInfo* peer) const;
  std::string Metrics() const;

  const StandbyCoordinatorOptions options;
  LeaderNote leader;
  Endpoint endpoint;
  std::mutex mutex;
  Status outcome;  // under the mutex
  EventLoop loop;
  StandbyCalls calls;
  std::unique_ptr<EnrolService> enrolment;
  std::unique_ptr<CertificateRotator> certificates;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<HttpServer> tls_http;
  std::unique_ptr<GrpcServer> grpc;
  std::thread thread;
};

Status StandbyCoordinator::Impl::Start() {
  if (!options.certificates.credentials_dir.empty()) {
    CertificateRotatorOptions rotator = options.certificates;
    rotator.on_look = [] {};
    rotator.on_another_authority = [this](const Status& replaced) {
      const std::lock_guard lock(mutex);
      outcome = replaced;
    };
    certificates =
        std::make_unique<CertificateRotator>(loop, *options.authenticator, std::move(rotator));
    MUSTER_RETURN_IF_ERROR(certificates->Start());
  }
  MUSTER_RETURN_IF_ERROR(ListenHttp());
  MUSTER_RETURN_IF_ERROR(ListenGrpc());
  endpoint = {.grpc = grpc->addresses().front(),
              .http = JoinAddress({SplitAddress(options.http).host, http->port()}),
              .pid = ::getpid(),
              .grpc_tls = grpc->tls_address(),
              .grpc_join = options.reachable(grpc->join_address())};
  if (tls_http)
    endpoint.http_tls = JoinAddress({SplitAddress(options.tls_http).host, tls_http->port()});
  MUSTER_RETURN_IF_ERROR(WriteEndpoint(options.endpoint_path, endpoint));
  Log().info("stands by at {}{}", endpoint.grpc,
             endpoint.grpc_tls.empty() ? "" : " and, by TLS, " + endpoint.grpc_tls);
  thread = std::thread([this] { loop.Run(); });
  return OkStatus();
}

// A join token is good where it was made, so the coordinator there redeems it, also while another
// one leads. Users are in the store, which the leader reads.
Status StandbyCoordinator::Impl::ListenGrpc() {
  std::optional<Enrolment> authority;
  if (!options.authority.empty()) {
    MUSTER_ASSIGN_OR_RETURN(authority, Enrolment::Open(options.authority, options.node_lifetime));
  }
  enrolment = std::make_unique<EnrolService>(std::move(authority));
  GrpcServices services{.others = &calls,
                        .join = MakeJoinService(*enrolment,
                                                [this](grpc::CallbackServerContext& context) {
                                                  return RefuseLogin(context);
                                                }),
                        .authenticator = options.authenticator};
  MUSTER_ASSIGN_OR_RETURN(grpc, GrpcServer::Listen(options.grpc, std::move(services)));
  return OkStatus();
}

grpc::Status StandbyCoordinator::Impl::RefuseLogin(grpc::CallbackServerContext& context) const {
  const std::optional<EpochClaim> claim = leader.Get();
  std::string address;
  if (claim && claim->ready && !claim->address.empty())
    for (const CoordinatorPlace& place : options.roster->All())
      if (place.address == claim->address) address = place.join;
  const std::string none = claim && claim->ready ? kLeadsElsewhere : kNoneLeads;
  context.AddTrailingMetadata(kLeaderKey, address.empty() ? none : address);
  return ToGrpcStatus(Unavailable(
      TextOf(claim) + (address.empty() ? "; people log in at its --join-listen"
                                       : "\n  next: muster login " + address + " --ca FILE")));
}

Status StandbyCoordinator::Impl::ListenHttp() {
  const HostPort inside = SplitAddress(options.http);
  MUSTER_ASSIGN_OR_RETURN(http, HttpServer::Listen(loop, inside.host, inside.port));
  AddPages(*http);
  if (options.tls_http.empty()) return OkStatus();
  const HostPort outside = SplitAddress(options.tls_http);
  HttpTlsOptions tls{
      .credentials_dir = options.grpc.credentials_dir,
      .authorize = [this](const std::string& path,
                          const CertificateInfo* peer) { return Authorize(path, peer); },
      // No browser has signed in here, and each is shown the way all the same.
      .find_session = [](std::string_view) { return std::nullopt; },
      .site = options.page};
  MUSTER_ASSIGN_OR_RETURN(tls_http,
                          HttpServer::ListenTls(loop, outside.host, outside.port, std::move(tls)));
  AddPages(*tls_http);
  return OkStatus();
}

Status StandbyCoordinator::Impl::Authorize(const std::string& path,
                                           const CertificateInfo* peer) const {
  if (peer != nullptr) MUSTER_RETURN_IF_ERROR(options.authenticator->CheckRevoked(*peer));
  if (!IsOwnPage(path)) return OkStatus();
  return AuthorizePage(path, peer == nullptr ? Caller::kNobody : CallerOf(peer->identity.role));
}

void StandbyCoordinator::Impl::AddPages(HttpServer& server) {
  const auto alive = [](const std::string&) { return HttpResponse{.body = "ok\n"}; };
  server.Handle("/healthz", alive);
  server.Handle("/livez", alive);
  server.Handle("/readyz", [this](const std::string&) {
    return HttpResponse{.status = 503, .body = TextOf(leader.Get()) + "\n"};
  });
  server.Handle("/metrics", [this](const std::string&) {
    return HttpResponse{.content_type = kMetricsContentType, .body = Metrics()};
  });
  for (const std::string_view path : KnownPages()) {
    if (IsOwnPage(path)) continue;
    const auto lead = [this](const HttpRequest& request, const HttpResponder& reply) {
      const std::string page = leader.Get().value_or(EpochClaim{}).page;
      if (page.empty()) return reply({.status = 503, .body = TextOf(leader.Get()) + "\n"});
      const std::string query = request.query.empty() ? "" : "?" + request.query;
      reply({.status = 307, .location = "https://" + page + request.path + query});
    };
    server.HandleLater(std::string(path), lead);
  }
}

std::string StandbyCoordinator::Impl::Metrics() const {
  MetricFamilies out;
  out.Gauge("muster_build_info", "Always 1; the labels say which build this is.")
      .Add({{"version", kVersion}, {"component", "coordinator"}}, 1);
  out.Gauge("muster_coordinator_leads", "1: this coordinator leads; 0: it stands by.").Add({}, 0);
  if (certificates)
    out.Gauge("muster_certificate_expiry_timestamp_seconds",
              "When the certificate in use expires, in Unix time.")
        .Add({}, static_cast<double>(certificates->not_after_ms()) / 1000);
  return out.Render();
}

StandbyCoordinator::StandbyCoordinator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StandbyCoordinator::~StandbyCoordinator() {
  if (impl_->enrolment) impl_->enrolment->Close(Unavailable("this coordinator begins to lead"));
  if (impl_->grpc) impl_->grpc->Shutdown(kGrace);
  impl_->loop.Stop();
  if (impl_->thread.joinable()) impl_->thread.join();
  ::unlink(impl_->options.endpoint_path.c_str());
}

Result<std::unique_ptr<StandbyCoordinator>> StandbyCoordinator::Listen(
    StandbyCoordinatorOptions options) {
  std::unique_ptr<StandbyCoordinator> standby(
      new StandbyCoordinator(std::make_unique<Impl>(std::move(options))));
  MUSTER_RETURN_IF_ERROR(standby->impl_->Start());
  return standby;
}

const Endpoint& StandbyCoordinator::endpoint() const { return impl_->endpoint; }

void StandbyCoordinator::SetLeader(const EpochClaim* leader) { impl_->leader.Set(leader); }

Status StandbyCoordinator::outcome() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->outcome;
}

}  // namespace muster
