#include "coordinator/store/etcd_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <utility>

#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "etcd/etcd.grpc.pb.h"

namespace muster {

namespace pb = etcdserverpb;

namespace {

constexpr unsigned kReloadSeconds = 1;
constexpr std::int64_t kMaxFileBytes = 1 << 20;
// An attempt's time; doubled after each round of the members.
constexpr Duration kFirstTimeout = std::chrono::milliseconds(500);
constexpr Duration kMaxTimeout = std::chrono::seconds(4);
constexpr Duration kPauseAfterRound = std::chrono::milliseconds(50);

std::shared_ptr<grpc::ChannelCredentials> TlsCredentialsOf(const EtcdAccess& access) {
  namespace tls = grpc::experimental;
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<tls::FileWatcherCertificateProvider>(
      access.key, access.certificate, access.ca, kReloadSeconds));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return tls::TlsCredentials(options);
}

// Of TLS 1.2 this program offers one cipher, which is of RSA keys (common/rpc/tls.h). gRPC says
// "Handshake read failed", "tcp handshaker shutdown", or the like.
Status WithTlsHint(const Status& status) {
  if (status.message().find("andshake") == std::string::npos) return status;
  return {status.code(), status.message() +
                             "; etcd 3.5.0 to 3.5.7 have no TLS 1.3, and need a certificate with "
                             "an RSA key"};
}

}  // namespace

bool IsUnanswered(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kCancelled:
    case StatusCode::kInternal:
    case StatusCode::kUnknown: return true;
    default: return false;
  }
}

pb::RequestOp EtcdPut(std::string key, std::string value, std::int64_t lease) {
  pb::RequestOp op;
  op.mutable_request_put()->set_key(std::move(key));
  op.mutable_request_put()->set_value(std::move(value));
  op.mutable_request_put()->set_lease(lease);
  return op;
}

pb::RequestOp EtcdDelete(std::string key, std::string range_end) {
  pb::RequestOp op;
  op.mutable_request_delete_range()->set_key(std::move(key));
  op.mutable_request_delete_range()->set_range_end(std::move(range_end));
  return op;
}

pb::RequestOp EtcdGet(std::string key) {
  pb::RequestOp op;
  op.mutable_request_range()->set_key(std::move(key));
  return op;
}

pb::Compare EtcdCreatedAt(std::string key, std::int64_t revision) {
  pb::Compare compare;
  compare.set_target(pb::Compare::CREATE);
  compare.set_key(std::move(key));
  compare.set_create_revision(revision);
  return compare;
}

std::string EtcdPrefixEnd(std::string prefix) {
  ++prefix.back();
  return prefix;
}

struct EtcdClient::Member {
  explicit Member(const std::string& address_in, const std::shared_ptr<grpc::Channel>& channel)
      : address(address_in),
        kv(pb::KV::NewStub(channel)),
        lease(pb::Lease::NewStub(channel)),
        watch(pb::Watch::NewStub(channel)),
        maintenance(pb::Maintenance::NewStub(channel)),
        auth(pb::Auth::NewStub(channel)) {}

  const std::string address;
  const std::unique_ptr<pb::KV::Stub> kv;
  const std::unique_ptr<pb::Lease::Stub> lease;
  const std::unique_ptr<pb::Watch::Stub> watch;
  const std::unique_ptr<pb::Maintenance::Stub> maintenance;
  const std::unique_ptr<pb::Auth::Stub> auth;
};

EtcdClient::EtcdClient(EtcdAccess access) : access_(std::move(access)) {}
EtcdClient::~EtcdClient() = default;

Result<std::unique_ptr<EtcdClient>> EtcdClient::Open(EtcdAccess access, Duration within) {
  MUSTER_RETURN_IF_ERROR(CheckEtcdAccess(access));
  std::unique_ptr<EtcdClient> client(new EtcdClient(std::move(access)));
  MUSTER_RETURN_IF_ERROR(client->OpenChannels());
  if (!client->access_.user.empty()) MUSTER_RETURN_IF_ERROR(client->Authenticate(within));
  return client;
}

Status EtcdClient::OpenChannels() {
  std::shared_ptr<grpc::ChannelCredentials> tls;
  if (!access_.ca.empty()) {
    // What is wrong with them is said at the start, and not in gRPC's log at each handshake.
    for (const std::string& file : {access_.ca, access_.certificate, access_.key})
      MUSTER_RETURN_IF_ERROR(
          ReadFile(file, kMaxFileBytes).status().WithContext("credentials for etcd"));
    tls = TlsCredentialsOf(access_);
  }
  for (const EtcdAddress& each : access_.members) {
    // Without pings: etcd closes connections that send them more often than its own limit.
    members_.push_back(std::make_unique<Member>(
        each.address,
        grpc::CreateCustomChannel(each.address, each.tls ? tls : grpc::InsecureChannelCredentials(),
                                  ChannelArguments(Pings::kNone))));
    names_ += (names_.empty() ? "" : ", ") + each.address;
  }
  return OkStatus();
}

Status EtcdClient::Authenticate(Duration within) {
  pb::AuthenticateRequest request;
  request.set_name(access_.user);
  auto password = ReadFile(access_.password_file, kMaxFileBytes);
  if (!password.ok()) return password.status().WithContext("--etcd-password-file");
  while (password->ends_with('\n')) password->pop_back();
  request.set_password(*password);
  pb::AuthenticateResponse response;
  token_.clear();
  const Status status = Call(within, [&](Member& member, grpc::ClientContext& context) {
    return member.auth->Authenticate(&context, request, &response);
  });
  if (status.ok()) token_ = response.token();
  return status.WithContext("log in as " + access_.user);
}

// Tokens end when they are not used for minutes, with the member that made them, and with each
// change of etcd's users. Where a certificate has a common name, etcd then takes that for the user.
bool EtcdClient::IsStaleToken(const Status& status) const {
  if (access_.user.empty()) return false;
  switch (status.code()) {
    case StatusCode::kUnauthenticated:
    case StatusCode::kPermissionDenied: return true;
    case StatusCode::kInvalidArgument:
      return status.message().find("auth store is old") != std::string::npos ||
             status.message().find("user name is empty") != std::string::npos;
    default: return false;
  }
}

Status EtcdClient::CallWithToken(Duration within, const Attempt& attempt) {
  const Deadline deadline = Deadline::After(within);
  const Status status = Call(within, attempt);
  if (!IsStaleToken(status)) return status;
  MUSTER_RETURN_IF_ERROR(Authenticate(deadline.Remaining()));
  return Call(deadline.Remaining(), attempt);
}

Status EtcdClient::Call(Duration within, const Attempt& attempt) {
  const Deadline deadline = Deadline::After(within);
  Duration timeout = kFirstTimeout;
  for (std::size_t failed = 1;; ++failed) {
    const Status status =
        Try(*members_[current_], std::min(timeout, deadline.Remaining()), attempt);
    if (!IsUnanswered(status)) return status;
    current_ = (current_ + 1) % members_.size();
    if (failed % members_.size() == 0) {
      timeout = std::min(2 * timeout, kMaxTimeout);
      Pause(std::min(kPauseAfterRound, deadline.Remaining()));
    }
    if (deadline.Expired()) return status;
    std::lock_guard lock(mutex_);
    if (canceled_) return status;
  }
}

Status EtcdClient::Try(Member& member, Duration within, const Attempt& attempt) {
  grpc::ClientContext context;
  context.set_deadline(SystemDeadline(within));
  // A member that is cut off from the others refuses, instead of waiting for them.
  context.AddMetadata("hasleader", "true");
  if (!token_.empty()) context.AddMetadata("token", token_);
  {
    std::lock_guard lock(mutex_);
    if (canceled_) return Cancelled("the coordinator is ending");
    under_way_ = &context;
  }
  const grpc::Status status = attempt(member, context);
  {
    std::lock_guard lock(mutex_);
    under_way_ = nullptr;
  }
  return WithTlsHint(FromGrpcStatus(status)).WithContext("etcd at " + member.address);
}

void EtcdClient::Pause(Duration duration) {
  std::unique_lock lock(mutex_);
  canceled_changed_.wait_for(lock, duration, [this] { return canceled_; });
}

void EtcdClient::Cancel() {
  {
    std::lock_guard lock(mutex_);
    canceled_ = true;
    if (under_way_ != nullptr) under_way_->TryCancel();
  }
  canceled_changed_.notify_all();
}

Result<pb::RangeResponse> EtcdClient::Range(const pb::RangeRequest& request, Duration within) {
  pb::RangeResponse response;
  MUSTER_RETURN_IF_ERROR(CallWithToken(within, [&](Member& member, grpc::ClientContext& context) {
    return member.kv->Range(&context, request, &response);
  }));
  return response;
}

Result<pb::TxnResponse> EtcdClient::Transact(const pb::TxnRequest& request, Duration within) {
  pb::TxnResponse response;
  MUSTER_RETURN_IF_ERROR(CallWithToken(within, [&](Member& member, grpc::ClientContext& context) {
    return member.kv->Txn(&context, request, &response);
  }));
  return response;
}

Status EtcdClient::Compact(std::int64_t revision, Duration within) {
  pb::CompactionRequest request;
  request.set_revision(revision);
  pb::CompactionResponse response;
  return CallWithToken(within, [&](Member& member, grpc::ClientContext& context) {
    return member.kv->Compact(&context, request, &response);
  });
}

Result<std::int64_t> EtcdClient::GrantLease(std::int64_t seconds, Duration within) {
  pb::LeaseGrantRequest request;
  request.set_ttl(seconds);
  pb::LeaseGrantResponse response;
  MUSTER_RETURN_IF_ERROR(CallWithToken(within, [&](Member& member, grpc::ClientContext& context) {
    return member.lease->LeaseGrant(&context, request, &response);
  }));
  return response.id();
}

Status EtcdClient::RevokeLease(std::int64_t lease, Duration within) {
  pb::LeaseRevokeRequest request;
  request.set_id(lease);
  pb::LeaseRevokeResponse response;
  return CallWithToken(within, [&](Member& member, grpc::ClientContext& context) {
    return member.lease->LeaseRevoke(&context, request, &response);
  });
}

Result<Duration> EtcdClient::KeepAlive(std::int64_t lease, Duration within) {
  pb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  pb::LeaseKeepAliveResponse response;
  bool answered = false;
  MUSTER_RETURN_IF_ERROR(CallWithToken(within, [&](Member& member, grpc::ClientContext& context) {
    const auto stream = member.lease->LeaseKeepAlive(&context);
    stream->Write(request);
    stream->WritesDone();
    answered = stream->Read(&response);
    const grpc::Status status = stream->Finish();
    if (status.ok() && !answered)
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream ended without an answer");
    return answered ? grpc::Status::OK : status;
  }));
  return Duration(std::chrono::seconds(response.ttl()));
}

void EtcdClient::AwaitChange(const std::string& key, std::int64_t revision, Duration within) {
  pb::WatchRequest request;
  request.mutable_create_request()->set_key(key);
  request.mutable_create_request()->set_start_revision(revision + 1);
  bool changed = false;
  const Status status =
      Try(*members_[current_], within, [&](Member& member, grpc::ClientContext& context) {
        const auto stream = member.watch->Watch(&context);
        stream->Write(request);
        pb::WatchResponse response;
        while (!changed && stream->Read(&response))
          changed = response.canceled() || response.events_size() > 0;
        if (changed) context.TryCancel();
        return stream->Finish();
      });
  if (changed || status.code() == StatusCode::kDeadlineExceeded) return;
  current_ = (current_ + 1) % members_.size();
  Pause(kFirstTimeout);
}

Result<std::vector<EtcdClient::MemberStatus>> EtcdClient::Members(Duration within) {
  const Deadline deadline = Deadline::After(within);
  std::vector<MemberStatus> members;
  for (Duration timeout = 2 * kFirstTimeout;; timeout *= 2) {
    Status last;
    for (const std::unique_ptr<Member>& each : members_) {
      pb::StatusResponse response;
      last = Try(*each, std::min(timeout, deadline.Remaining()),
                 [&](Member& member, grpc::ClientContext& context) {
                   return member.maintenance->Status(&context, {}, &response);
                 });
      if (last.ok())
        members.push_back({.address = each->address,
                           .version = response.version(),
                           .file_bytes = response.db_size(),
                           .used_bytes = response.db_size_in_use(),
                           .leads = response.header().member_id() == response.leader()});
    }
    if (!members.empty()) return members;
    if (!IsUnanswered(last) || deadline.Expired()) return last;
    Pause(kPauseAfterRound);
  }
}

Status EtcdClient::Defragment(const std::string& address, Duration within) {
  if (!access_.user.empty()) MUSTER_RETURN_IF_ERROR(Authenticate(within));
  const auto member = std::ranges::find(
      members_, address, [](const auto& each) -> const std::string& { return each->address; });
  if (member == members_.end()) return NotFound("there is no member at " + address);
  pb::DefragmentResponse response;
  return Try(**member, within, [&](Member& each, grpc::ClientContext& context) {
    return each.maintenance->Defragment(&context, {}, &response);
  });
}

}  // namespace muster
