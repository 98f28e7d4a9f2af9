#include "cli/client/cluster_client.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <filesystem>

#include "cli/base/exit_code.h"
#include "common/base/locked_record.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/tls.h"
#include "common/rpc/token.h"
#include "muster/v1/client_api.grpc.pb.h"
#include "muster/v1/secret_api.grpc.pb.h"

namespace muster {
namespace {

// Longer than the largest checkpoints need.
constexpr auto kVerifyTimeout = std::chrono::hours(48);
constexpr int kPageLimit = 1000;  // of the coordinator
// A coordinator reads its store before it answers.
constexpr auto kStartTimeout = std::chrono::seconds(10);
constexpr auto kStartPoll = std::chrono::milliseconds(50);

// gRPC counts deadlines in the system clock.
std::chrono::system_clock::time_point SystemDeadline(Duration remaining) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(remaining);
}

}  // namespace

struct ClusterClient::Connection {
  CoordinatorChannel coordinator;
  std::unique_ptr<v1::Client::Stub> stub;
  std::unique_ptr<v1::Secrets::Stub> secrets;

  v1::Client::Stub& Of(const v1::Client::Stub*) const { return *stub; }
  v1::Secrets::Stub& Of(const v1::Secrets::Stub*) const { return *secrets; }
};

ClusterClient::ClusterClient(std::string dir, Interrupt& interrupt, RemoteCoordinator remote)
    : paths_{std::move(dir)}, interrupt_(interrupt), remote_(std::move(remote)) {}
ClusterClient::ClusterClient(std::string dir, Interrupt& interrupt, FindRemote find_remote)
    : paths_{std::move(dir)}, interrupt_(interrupt), find_remote_(std::move(find_remote)) {}
ClusterClient::~ClusterClient() = default;

Status ClusterClient::CheckIsLocal() const {
  if (!find_remote_ && remote_.address.empty() && remote_.credentials_dir.empty())
    return OkStatus();
  return InvalidArgument(
      "this command acts on a cluster of this machine; it does not accept --coordinator, --tls, or "
      "--slurm-job\n  next: unset MUSTER_COORDINATOR MUSTER_TLS MUSTER_SLURM_JOB");
}

Result<Endpoint> ClusterClient::FindEndpoint() const {
  auto endpoint = FindCoordinator(remote_.address, paths_.Endpoint());
  if (!endpoint.ok() && endpoint.status().code() == StatusCode::kNotFound)
    return NotFound("there is no cluster in " + paths_.dir);
  return endpoint;
}

// A coordinator that starts removes its predecessor's file, and writes its own once it answers.
Result<Endpoint> ClusterClient::AwaitEndpoint() {
  const std::string dir = ShellWord(paths_.dir);
  const Deadline deadline = Deadline::After(kStartTimeout);
  for (;;) {
    auto endpoint = FindEndpoint();
    if (endpoint.ok()) return endpoint;
    if (!remote_.address.empty()) return endpoint;
    if (endpoint.status().code() != StatusCode::kNotFound)
      return Status(endpoint.status().code(),
                    endpoint.status().message() + "\n  next: " + RestartCommand());
    if (!IsRecordLocked(paths_.CoordinatorPid())) break;
    if (deadline.Expired())
      return Unavailable("the coordinator in " + paths_.dir +
                         " does not answer yet\n  next: tail " +
                         ShellWord(paths_.CoordinatorLog()));
    if (interrupt_.WaitFor(kStartPoll)) return Cancelled("interrupted");
  }
  std::error_code error;
  if (std::filesystem::exists(paths_.Token(), error))
    return Unavailable("no coordinator runs in " + paths_.dir +
                       "; start it again, or select another with --dir or MUSTER_DIR\n  next: "
                       "muster up --dir " +
                       dir);
  return Unavailable("there is no cluster in " + paths_.dir +
                     "; start one, or select another with --dir or MUSTER_DIR\n  next: muster up "
                     "--nodes 2 --dir " +
                     dir);
}

std::string ClusterClient::RestartCommand() const {
  const std::string dir = ShellWord(paths_.dir);
  return "muster down --dir " + dir + " && muster up --dir " + dir;
}

Status ClusterClient::Connect() {
  if (connection_) return OkStatus();
  // Asked again for each connection: a coordinator moves, a login is renewed.
  std::error_code error;
  const bool by_login =
      !find_remote_ && find_login_ && !std::filesystem::exists(paths_.Token(), error);
  if (find_remote_ || by_login) {
    auto found = by_login ? find_login_() : find_remote_();
    if (found.ok()) remote_ = *std::move(found);
    const bool none = by_login && found.status().code() == StatusCode::kNotFound;
    if (!found.ok() && !none) return found.status();
  }
  const auto endpoint = AwaitEndpoint();
  if (!endpoint.ok()) return endpoint.status();
  auto coordinator = OpenCoordinator(*endpoint, remote_.credentials_dir, paths_.Token());
  const bool remote = !remote_.credentials_dir.empty() || !remote_.address.empty();
  if (!coordinator.ok() && remote) return coordinator.status();
  if (!coordinator.ok()) {
    const bool none = coordinator.status().code() == StatusCode::kNotFound;
    return {none ? StatusCode::kUnavailable : coordinator.status().code(),
            coordinator.status().message() + "\n  next: rm -f " + ShellWord(paths_.Token()) +
                " && " + RestartCommand()};
  }
  auto stub = v1::Client::NewStub(coordinator->channel);
  auto secrets = v1::Secrets::NewStub(coordinator->channel);
  connection_ = std::make_unique<Connection>(
      Connection{*std::move(coordinator), std::move(stub), std::move(secrets)});
  return OkStatus();
}

void ClusterClient::Attach(grpc::ClientContext& context) const {
  AttachToken(context, connection_->coordinator);
  if (!as_user_.empty()) context.AddMetadata(kAsUserKey, as_user_);
}

void ClusterClient::Disconnect() { connection_.reset(); }

Status ClusterClient::Explain(const Status& status) const {
  if (status.ok()) return status;
  if (interrupt_.requested()) return Cancelled("interrupted");
  // A coordinator that stops cancels the calls that it has not answered.
  if (status.code() == StatusCode::kCancelled)
    return Unavailable("the coordinator at " + connection_->coordinator.address + " is stopping");
  std::string message = status.message();
  if (status.code() == StatusCode::kUnavailable)
    message = "the coordinator at " + connection_->coordinator.address + " does not answer (" +
              status.message() + "); it may have exited, or may be restarting";
  if (status.code() == StatusCode::kDeadlineExceeded)
    message = "the coordinator at " + connection_->coordinator.address + " did not answer in time";
  // NextCommand names commands for a cluster on this machine.
  const bool is_local = !connection_->coordinator.token.empty();
  if (const std::string next = NextCommand(status, paths_.dir); is_local && !next.empty())
    message += "\n  next: " + next;
  return {status.code(), message};
}

template <typename Request, typename Response, typename Stub>
Result<Response> ClusterClient::Call(const Request& request,
                                     grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                  const Request&, Response*),
                                     std::optional<Duration> timeout) {
  MUSTER_RETURN_IF_ERROR(Connect());
  grpc::ClientContext context;
  Attach(context);
  context.set_deadline(SystemDeadline(timeout.value_or(call_limit_)));
  Interrupt::Scope scope(interrupt_, [&context] { context.TryCancel(); });
  Response response;
  const grpc::Status status =
      (connection_->Of(static_cast<const Stub*>(nullptr)).*method)(&context, request, &response);
  if (!status.ok()) return Explain(FromGrpcStatus(status));
  return response;
}

Result<v1::SubmitResponse> ClusterClient::Submit(const v1::SubmitRequest& request) {
  return Call<v1::SubmitRequest, v1::SubmitResponse>(request, &v1::Client::Stub::Submit);
}

Result<v1::Job> ClusterClient::GetJob(const std::string& job) {
  v1::GetJobRequest request;
  request.set_job(job);
  return Call<v1::GetJobRequest, v1::Job>(request, &v1::Client::Stub::GetJob);
}

Result<v1::ListJobsResponse> ClusterClient::ListJobs(bool all, int limit) {
  v1::ListJobsRequest request;
  request.set_all(all);
  return ListJobs(std::move(request), limit);
}

// Pages come with the newest submission first.
Result<v1::ListJobsResponse> ClusterClient::ListJobs(v1::ListJobsRequest request, int limit) {
  v1::ListJobsResponse jobs;
  do {
    if (limit > 0) request.set_limit(std::min(kPageLimit, limit - jobs.jobs_size()));
    MUSTER_ASSIGN_OR_RETURN(
        v1::ListJobsResponse page,
        (Call<v1::ListJobsRequest, v1::ListJobsResponse>(request, &v1::Client::Stub::ListJobs)));
    if (!jobs.has_cluster()) jobs.mutable_cluster()->Swap(page.mutable_cluster());
    jobs.mutable_jobs()->MergeFrom(page.jobs());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && (limit == 0 || jobs.jobs_size() < limit));
  std::reverse(jobs.mutable_jobs()->pointer_begin(), jobs.mutable_jobs()->pointer_end());
  return jobs;
}

Result<v1::CancelResponse> ClusterClient::Cancel(const v1::CancelRequest& request) {
  return Call<v1::CancelRequest, v1::CancelResponse>(request, &v1::Client::Stub::Cancel);
}

Result<v1::ListEventsResponse> ClusterClient::ListEvents(const v1::ListEventsRequest& request) {
  return Call<v1::ListEventsRequest, v1::ListEventsResponse>(request,
                                                             &v1::Client::Stub::ListEvents);
}

Result<v1::ListNodesResponse> ClusterClient::ListNodes() {
  v1::ListNodesRequest request;
  v1::ListNodesResponse nodes;
  do {
    MUSTER_ASSIGN_OR_RETURN(
        const v1::ListNodesResponse page,
        (Call<v1::ListNodesRequest, v1::ListNodesResponse>(request, &v1::Client::Stub::ListNodes)));
    nodes.mutable_nodes()->MergeFrom(page.nodes());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return nodes;
}

Result<v1::SuspendResponse> ClusterClient::Suspend(const v1::SuspendRequest& request) {
  return Call<v1::SuspendRequest, v1::SuspendResponse>(request, &v1::Client::Stub::Suspend);
}

Result<v1::ResumeResponse> ClusterClient::Resume(const v1::ResumeRequest& request) {
  return Call<v1::ResumeRequest, v1::ResumeResponse>(request, &v1::Client::Stub::Resume);
}

Result<v1::UpdateJobResponse> ClusterClient::UpdateJob(const v1::UpdateJobRequest& request) {
  return Call<v1::UpdateJobRequest, v1::UpdateJobResponse>(request, &v1::Client::Stub::UpdateJob);
}

Result<v1::HoldJobResponse> ClusterClient::HoldJob(const v1::HoldJobRequest& request) {
  return Call<v1::HoldJobRequest, v1::HoldJobResponse>(request, &v1::Client::Stub::HoldJob);
}

Result<v1::ExplainJobResponse> ClusterClient::ExplainJob(const v1::ExplainJobRequest& request) {
  return Call<v1::ExplainJobRequest, v1::ExplainJobResponse>(request,
                                                             &v1::Client::Stub::ExplainJob);
}
Result<v1::ReleaseJobResponse> ClusterClient::ReleaseJob(const v1::ReleaseJobRequest& request) {
  return Call<v1::ReleaseJobRequest, v1::ReleaseJobResponse>(request,
                                                             &v1::Client::Stub::ReleaseJob);
}

Result<v1::DrainResponse> ClusterClient::Drain(const v1::DrainRequest& request) {
  return Call<v1::DrainRequest, v1::DrainResponse>(request, &v1::Client::Stub::Drain);
}

Result<v1::UndrainResponse> ClusterClient::Undrain(const v1::UndrainRequest& request) {
  return Call<v1::UndrainRequest, v1::UndrainResponse>(request, &v1::Client::Stub::Undrain);
}

Result<v1::InjectFaultResponse> ClusterClient::InjectFault(const v1::InjectFaultRequest& request) {
  return Call<v1::InjectFaultRequest, v1::InjectFaultResponse>(request,
                                                               &v1::Client::Stub::InjectFault);
}

Result<v1::VerifyCheckpointsResponse> ClusterClient::VerifyCheckpoints(
    const v1::VerifyCheckpointsRequest& request) {
  return Call<v1::VerifyCheckpointsRequest, v1::VerifyCheckpointsResponse>(
      request, &v1::Client::Stub::VerifyCheckpoints, kVerifyTimeout);
}

Result<v1::ShowUsageResponse> ClusterClient::ShowUsage(const v1::ShowUsageRequest& request) {
  return Call<v1::ShowUsageRequest, v1::ShowUsageResponse>(request, &v1::Client::Stub::ShowUsage);
}

Result<std::string> ClusterClient::ExportSchedule() {
  MUSTER_RETURN_IF_ERROR(Connect());
  grpc::ClientContext context;
  Attach(context);
  Interrupt::Scope scope(interrupt_, [&context] { context.TryCancel(); });
  const auto reader = connection_->stub->ExportSchedule(&context, {});
  std::string recording;
  for (v1::ExportScheduleResponse part; reader->Read(&part);) recording += part.recording();
  const grpc::Status status = reader->Finish();
  if (!status.ok()) return Explain(FromGrpcStatus(status));
  return recording;
}

Result<v1::ReadLogResponse> ClusterClient::ReadLog(const v1::ReadLogRequest& request) {
  return Call<v1::ReadLogRequest, v1::ReadLogResponse>(request, &v1::Client::Stub::ReadLog);
}

Result<v1::VersionResponse> ClusterClient::Version() {
  return Call<v1::VersionRequest, v1::VersionResponse>({}, &v1::Client::Stub::Version);
}

Status ClusterClient::Watch(const v1::WatchRequest& request, TimePoint deadline,
                            const std::function<bool(const v1::WatchUpdate&)>& on_update) {
  MUSTER_RETURN_IF_ERROR(Connect());
  grpc::ClientContext context;
  Attach(context);
  if (deadline != TimePoint::max())
    context.set_deadline(SystemDeadline(Deadline::At(deadline).Remaining()));
  Interrupt::Scope scope(interrupt_, [&context] { context.TryCancel(); });
  auto reader = connection_->stub->Watch(&context, request);
  v1::WatchUpdate update;
  bool wanted = true;
  while (wanted && reader->Read(&update)) wanted = on_update(update);
  if (!wanted) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!wanted && !interrupt_.requested()) return OkStatus();
  return Explain(FromGrpcStatus(status));
}

Result<v1::WhoAmIResponse> ClusterAdmin::WhoAmI() {
  return client_.Call<v1::WhoAmIRequest, v1::WhoAmIResponse>({}, &v1::Client::Stub::WhoAmI);
}

Result<v1::ApplyQueuesResponse> ClusterAdmin::ApplyQueues(const v1::ApplyQueuesRequest& request) {
  return client_.Call<v1::ApplyQueuesRequest, v1::ApplyQueuesResponse>(
      request, &v1::Client::Stub::ApplyQueues);
}

Result<v1::ShowQueuesResponse> ClusterAdmin::ShowQueues() {
  return client_.Call<v1::ShowQueuesRequest, v1::ShowQueuesResponse>({},
                                                                     &v1::Client::Stub::ShowQueues);
}

Result<v1::ApplyUsersResponse> ClusterAdmin::ApplyUsers(const v1::ApplyUsersRequest& request) {
  return client_.Call<v1::ApplyUsersRequest, v1::ApplyUsersResponse>(request,
                                                                     &v1::Client::Stub::ApplyUsers);
}

Result<v1::ShowUsersResponse> ClusterAdmin::ShowUsers() {
  return client_.Call<v1::ShowUsersRequest, v1::ShowUsersResponse>({},
                                                                   &v1::Client::Stub::ShowUsers);
}

Result<v1::ListAuditResponse> ClusterAdmin::ListAudit(const v1::ListAuditRequest& request) {
  return client_.Call<v1::ListAuditRequest, v1::ListAuditResponse>(request,
                                                                   &v1::Client::Stub::ListAudit);
}

Result<v1::SecretResponse> ClusterAdmin::SetSecret(const v1::SetSecretRequest& request) {
  return client_.Call<v1::SetSecretRequest, v1::SecretResponse>(request,
                                                                &v1::Secrets::Stub::SetSecret);
}

Result<v1::ListSecretsResponse> ClusterAdmin::ListSecrets(const v1::ListSecretsRequest& request) {
  return client_.Call<v1::ListSecretsRequest, v1::ListSecretsResponse>(
      request, &v1::Secrets::Stub::ListSecrets);
}

Result<v1::SecretResponse> ClusterAdmin::RemoveSecret(const v1::RemoveSecretRequest& request) {
  return client_.Call<v1::RemoveSecretRequest, v1::SecretResponse>(
      request, &v1::Secrets::Stub::RemoveSecret);
}

Result<v1::RotateSecretKeyResponse> ClusterAdmin::RotateSecretKey() {
  return client_.Call<v1::RotateSecretKeyRequest, v1::RotateSecretKeyResponse>(
      {}, &v1::Secrets::Stub::RotateSecretKey);
}

}  // namespace muster
