#include "worker/service/enrolment.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/tls.h"
#include "common/runtime/pause.h"
#include "common/security/certificate_request.h"
#include "common/security/credentials.h"
#include "common/telemetry/log.h"
#include "muster/v1/enrol_api.grpc.pb.h"

namespace muster::worker {
namespace {

constexpr auto kCallLimit = std::chrono::seconds(10);
constexpr Duration kFirstPause = std::chrono::seconds(1);
constexpr Duration kLongestPause = std::chrono::minutes(5);
constexpr Duration kLongestJoinPause = std::chrono::seconds(15);
// A corrected clock would otherwise be noticed a day later.
constexpr Duration kLongestSleep = std::chrono::hours(1);

void SetLimit(grpc::ClientContext* context) { context->set_deadline(SystemDeadline(kCallLimit)); }

bool WorthAnotherTry(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded ||
         status.code() == StatusCode::kResourceExhausted;
}

// Whether the node has credentials already and can use them.
bool HasGoodCredentials(const JoinOptions& options) {
  const Result<Credentials> credentials = LoadCredentials(options.credentials_dir);
  return credentials.ok() && credentials->identity.role == Role::kNode &&
         credentials->identity.name == options.node &&
         CheckNotExpired(*credentials, SystemClock().UnixMillis()).ok();
}

// One try; the key's certificate is in `credentials_dir` afterwards.
Status JoinCluster(const JoinOptions& options, const std::string& address, const JoinToken& token,
                   const KeyAndRequest& own) {
  v1::JoinRequest request;
  request.set_token_id(token.id);
  request.set_secret(token.secret);
  request.set_node(options.node);
  request.set_request_pem(own.csr_pem);
  v1::JoinResponse response;
  grpc::ClientContext context;
  SetLimit(&context);
  const auto stub = v1::Enrol::NewStub(OpenTlsChannelToJoin(address, token.ca_pem));
  MUSTER_RETURN_IF_ERROR(FromGrpcStatus(stub->Join(&context, request, &response)));
  return WriteCredentials(options.credentials_dir,
                          {token.ca_pem, response.certificate_pem(), own.key_pem});
}

Status RenewNow(const RenewalOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const std::string coordinator, options.find_coordinator());
  MUSTER_ASSIGN_OR_RETURN(const Credentials now, LoadCredentials(options.credentials_dir));
  MUSTER_ASSIGN_OR_RETURN(const KeyAndRequest next, MakeCertificateRequest(now.identity));
  MUSTER_ASSIGN_OR_RETURN(const auto channel, OpenTlsChannel(coordinator, options.credentials_dir));
  v1::RenewRequest request;
  request.set_request_pem(next.csr_pem);
  v1::RenewResponse response;
  grpc::ClientContext context;
  SetLimit(&context);
  MUSTER_RETURN_IF_ERROR(
      FromGrpcStatus(v1::Enrol::NewStub(channel)->Renew(&context, request, &response)));
  return WriteCredentials(options.credentials_dir,
                          {now.ca_pem, response.certificate_pem(), next.key_pem});
}

}  // namespace

Result<Invitation> InvitationOf(const std::string& text) {
  if (text.starts_with(kJoinTokenPrefix)) return ParseInvitation(text);
  const Result<std::string> file = ReadFile(text, 64 << 10);
  if (!file.ok())
    return file.status().WithContext("--join is neither a token (" + std::string(kJoinTokenPrefix) +
                                     "...) nor a file with one");
  return ParseInvitation(*file);
}

Status JoinUntilIn(const JoinOptions& options) {
  MUSTER_RETURN_IF_ERROR(MendCredentials(options.credentials_dir));
  if (HasGoodCredentials(options)) {
    Log().info("this node has its certificate already; the join token is not needed");
    return OkStatus();
  }
  MUSTER_ASSIGN_OR_RETURN(const Invitation invitation, InvitationOf(options.invitation));
  MUSTER_ASSIGN_OR_RETURN(const JoinToken token, ParseJoinToken(invitation.token));
  const std::string& address = invitation.join_address;
  if (address.empty())
    return InvalidArgument(
        "the join token does not say where to join; start the coordinator with --join-listen and "
        "make another, or name the address: muster certs join-token --join-address IP:PORT");
  MUSTER_RETURN_IF_ERROR(CheckTlsListenAddress(address).WithContext("the join token's address"));
  const Identity identity{Role::kNode, options.node, token.cluster};
  MUSTER_RETURN_IF_ERROR(CheckIdentity(identity));
  MUSTER_ASSIGN_OR_RETURN(const KeyAndRequest own, MakeCertificateRequest(identity));
  std::string told;
  for (Backoff pauses(kFirstPause, kLongestJoinPause);;) {
    const Status status = JoinCluster(options, address, token, own);
    if (status.ok()) {
      Log().info("joined the cluster at {}; certificate and key are in {}", address,
                 options.credentials_dir);
      return status;
    }
    if (!WorthAnotherTry(status)) return status.WithContext("joining the cluster at " + address);
    if (status.message() != told)
      Log().warn("the cluster at {} could not be joined: {}; trying again", address,
                 status.message());
    told = status.message();
    Pause(pauses.Next());
  }
}

std::int64_t RenewAtMs(std::int64_t issued_ms, std::int64_t due_ms, double jitter) {
  const std::int64_t tenth = (due_ms - issued_ms) / 10;
  return due_ms - tenth + static_cast<std::int64_t>(jitter * static_cast<double>(tenth));
}

CertificateRenewal::CertificateRenewal(EventLoop& loop, RenewalOptions options, double jitter)
    : loop_(loop),
      options_(std::move(options)),
      jitter_(jitter),
      pauses_(kFirstPause, kLongestPause),
      timer_(loop) {}

CertificateRenewal::~CertificateRenewal() { *alive_ = false; }

void CertificateRenewal::Start() { Schedule(); }

void CertificateRenewal::Schedule() {
  const Result<Credentials> credentials = LoadCredentials(options_.credentials_dir);
  if (!credentials.ok()) return OnRenewed(credentials.status());
  not_after_ms_ = credentials->not_after_ms;
  const std::int64_t at = RenewAtMs(credentials->issued_ms, RenewalDueMs(*credentials), jitter_);
  const std::int64_t wait = at - SystemClock().UnixMillis();
  if (wait <= 0) return Renew();
  timer_.Start(std::min<Duration>(std::chrono::milliseconds(wait), kLongestSleep),
               [this] { Schedule(); });
}

void CertificateRenewal::Renew() {
  const auto work = [&loop = loop_, this, options = options_, alive = alive_] {
    const Status status = RenewNow(options);
    loop.Post([this, alive, status] {
      if (*alive) OnRenewed(status);
    });
  };
  if (!pool_.TrySubmit(work)) OnRenewed(ResourceExhausted("the last renewal is still under way"));
}

void CertificateRenewal::OnRenewed(const Status& status) {
  if (status.ok()) {
    ++renewals_;
    pauses_.Reset();
    Log().info("this node's certificate was renewed");
    return Schedule();
  }
  ++failures_;
  const Duration pause = pauses_.Next();
  Log().warn("this node's certificate could not be renewed: {}; trying again in {} s",
             status.message(), ToSeconds(pause));
  timer_.Start(pause, [this] { Schedule(); });
}

}  // namespace muster::worker
