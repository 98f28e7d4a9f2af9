// ClusterClient: calls to the coordinator of one cluster directory, or to one on another machine.
//
// Every call has a deadline and ends early on an Interrupt (kCancelled); a CoordinatorLink makes it
// at the coordinator that leads. Errors name the next command to type. One thread.
#pragma once

#include <grpcpp/support/status.h>
#include <functional>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/base/interrupt.h"
#include "cli/client/remote_coordinator.h"
#include "common/base/clock.h"
#include "common/base/cluster_paths.h"
#include "common/base/result.h"
#include "common/rpc/endpoint.h"
#include "muster/v1/client_api.pb.h"
#include "muster/v1/secret_api.pb.h"

namespace grpc {
class ClientContext;
}

namespace muster {

class CoordinatorLink;

class ClusterClient {
 public:
  ClusterClient(std::string dir, Interrupt& interrupt, RemoteCoordinator remote = {});
  ClusterClient(std::string dir, Interrupt& interrupt, FindRemote find_remote);
  ~ClusterClient();

  // Where the directory has no cluster, calls go to this coordinator instead, that of a login;
  // kNotFound: there is none. Verbs for clusters of this machine act on the directory still.
  void OtherwiseUse(FindRemote find);

  Result<v1::SubmitResponse> Submit(const v1::SubmitRequest& request);
  Result<v1::Job> GetJob(const std::string& job);
  // In order of submission, of all pages. `limit`: the newest so many; 0: no limit.
  Result<v1::ListJobsResponse> ListJobs(v1::ListJobsRequest request, int limit = 0);
  // `all`: also those that ended more than a day ago, and the archive.
  Result<v1::ListJobsResponse> ListJobs(bool all, int limit = 0);
  Result<v1::CancelResponse> Cancel(const v1::CancelRequest& request);
  Result<v1::SuspendResponse> Suspend(const v1::SuspendRequest& request);
  Result<v1::ResumeResponse> Resume(const v1::ResumeRequest& request);
  Result<v1::UpdateJobResponse> UpdateJob(const v1::UpdateJobRequest& request);
  Result<v1::HoldJobResponse> HoldJob(const v1::HoldJobRequest& request);
  Result<v1::ReleaseJobResponse> ReleaseJob(const v1::ReleaseJobRequest& request);
  Result<v1::ExplainJobResponse> ExplainJob(const v1::ExplainJobRequest& request);
  Result<v1::ListEventsResponse> ListEvents(const v1::ListEventsRequest& request);
  Result<v1::ListNodesResponse> ListNodes();  // by name, of all pages
  Result<v1::DrainResponse> Drain(const v1::DrainRequest& request);
  Result<v1::UndrainResponse> Undrain(const v1::UndrainRequest& request);
  Result<v1::InjectFaultResponse> InjectFault(const v1::InjectFaultRequest& request);
  // Returns when every checkpoint is read, which can take hours.
  Result<v1::VerifyCheckpointsResponse> VerifyCheckpoints(
      const v1::VerifyCheckpointsRequest& request);
  Result<v1::ShowUsageResponse> ShowUsage(const v1::ShowUsageRequest& request);
  // A recording of one pass.
  Result<std::string> ExportSchedule();
  Result<v1::ReadLogResponse> ReadLog(const v1::ReadLogRequest& request);
  Result<v1::VersionResponse> Version();
  // Asks each of those that were named, and the leader that one of them names; waits for each for
  // some seconds.
  Result<std::vector<CoordinatorAnswer>> AskCoordinators();

  // Streams updates to `on_update` until it returns false or the stream ends. OK also when the
  // coordinator ended the stream; kDeadlineExceeded at the deadline.
  Status Watch(const v1::WatchRequest& request, TimePoint deadline,
               const std::function<bool(const v1::WatchUpdate&)>& on_update);

  const std::string& dir() const { return paths().dir; }
  const ClusterPaths& paths() const;
  Interrupt& interrupt();
  // kInvalidArgument for a coordinator given by an address, credentials, or a Slurm job: `up` and
  // `down` act on this machine, and the daemons that `up` starts read the same variables.
  Status CheckIsLocal() const;
  // Where the coordinator last listened; kNotFound when none has run in this directory.
  Result<Endpoint> FindEndpoint() const;
  // The same, after a coordinator that is starting has written it. Without one kUnavailable, with
  // the command that starts it.
  Result<Endpoint> AwaitEndpoint();

  // From now on calls are made in the name of that user; empty: in the caller's own.
  void ActFor(std::string user);

  // Drops the connection, so that the next call reads the endpoint again.
  void Disconnect();

  // Limits every call except VerifyCheckpoints and Watch.
  void LimitCalls(Duration limit);

 private:
  friend class ClusterAdmin;
  template <typename Request, typename Response, typename Stub>
  Result<Response> Call(const Request& request,
                        grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                     Response*),
                        std::optional<Duration> timeout = std::nullopt);

  const std::unique_ptr<CoordinatorLink> link_;
};

// ClusterAdmin: calls about the cluster itself: its queues, its users, its audit trail, secrets,
// and who the caller is to it.
//
// A view of a ClusterClient, which outlives it; fails as its calls do. One thread.
class ClusterAdmin {
 public:
  explicit ClusterAdmin(ClusterClient& client) : client_(client) {}

  Result<v1::WhoAmIResponse> WhoAmI();
  Result<v1::ApplyQueuesResponse> ApplyQueues(const v1::ApplyQueuesRequest& request);
  Result<v1::ShowQueuesResponse> ShowQueues();
  Result<v1::ApplyUsersResponse> ApplyUsers(const v1::ApplyUsersRequest& request);
  Result<v1::ShowUsersResponse> ShowUsers();
  Result<v1::ListAuditResponse> ListAudit(const v1::ListAuditRequest& request);
  Result<v1::SecretResponse> SetSecret(const v1::SetSecretRequest& request);
  Result<v1::ListSecretsResponse> ListSecrets(const v1::ListSecretsRequest& request);
  Result<v1::SecretResponse> RemoveSecret(const v1::RemoveSecretRequest& request);
  Result<v1::RotateSecretKeyResponse> RotateSecretKey();

 private:
  ClusterClient& client_;
};

}  // namespace muster
