#include "cli/client/cluster_client.h"

#include <grpcpp/client_context.h>

#include <algorithm>

#include "cli/client/coordinator_link.h"
#include "common/rpc/channel.h"

namespace muster {
namespace {

// Longer than the largest checkpoints need.
constexpr auto kVerifyTimeout = std::chrono::hours(48);
constexpr auto kNoDeadline = std::chrono::system_clock::time_point::max();
constexpr int kPageLimit = 1000;  // of the coordinator

}  // namespace

ClusterClient::ClusterClient(std::string dir, Interrupt& interrupt, RemoteCoordinator remote)
    : link_(std::make_unique<CoordinatorLink>(std::move(dir), interrupt, std::move(remote))) {}
ClusterClient::ClusterClient(std::string dir, Interrupt& interrupt, FindRemote find_remote)
    : link_(std::make_unique<CoordinatorLink>(std::move(dir), interrupt, std::move(find_remote))) {}
ClusterClient::~ClusterClient() = default;

void ClusterClient::OtherwiseUse(FindRemote find) { link_->OtherwiseUse(std::move(find)); }
void ClusterClient::ActFor(std::string user) { link_->ActFor(std::move(user)); }
void ClusterClient::LimitCalls(Duration limit) { link_->LimitCalls(limit); }
void ClusterClient::Disconnect() { link_->Disconnect(); }
const ClusterPaths& ClusterClient::paths() const { return link_->paths(); }
Interrupt& ClusterClient::interrupt() { return link_->interrupt(); }
Status ClusterClient::CheckIsLocal() const { return link_->CheckIsLocal(); }
Result<Endpoint> ClusterClient::FindEndpoint() const { return link_->FindEndpoint(); }
Result<Endpoint> ClusterClient::AwaitEndpoint() { return link_->AwaitEndpoint(); }
Result<std::vector<CoordinatorAnswer>> ClusterClient::AskCoordinators() {
  return link_->AskCoordinators();
}

template <typename Request, typename Response, typename Stub>
Result<Response> ClusterClient::Call(const Request& request,
                                     grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                  const Request&, Response*),
                                     std::optional<Duration> timeout) {
  Response response;
  MUSTER_RETURN_IF_ERROR(
      link_->Reach([&](const CoordinatorLink::Stubs& stubs, grpc::ClientContext& context) {
        if (timeout) context.set_deadline(SystemDeadline(*timeout));
        return (stubs.Of(static_cast<const Stub*>(nullptr)).*method)(&context, request, &response);
      }));
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
  std::string recording;
  MUSTER_RETURN_IF_ERROR(
      link_->Reach([&](const CoordinatorLink::Stubs& stubs, grpc::ClientContext& context) {
        context.set_deadline(kNoDeadline);
        const auto reader = stubs.client->ExportSchedule(&context, {});
        for (v1::ExportScheduleResponse part; reader->Read(&part);) recording += part.recording();
        return reader->Finish();
      }));
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
  return link_->Reach([&](const CoordinatorLink::Stubs& stubs, grpc::ClientContext& context) {
    context.set_deadline(deadline == TimePoint::max()
                             ? kNoDeadline
                             : SystemDeadline(Deadline::At(deadline).Remaining()));
    auto reader = stubs.client->Watch(&context, request);
    v1::WatchUpdate update;
    bool wanted = true;
    while (wanted && reader->Read(&update)) wanted = on_update(update);
    if (!wanted) context.TryCancel();
    const grpc::Status status = reader->Finish();
    return wanted || interrupt().requested() ? status : grpc::Status::OK;
  });
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
