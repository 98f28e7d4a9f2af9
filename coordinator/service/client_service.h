// ClientService: requests of the muster CLI, answered from the controller's views or by its
// replies.
//
// Owned by the server. gRPC's threads call the RPC functions, which only identify the caller and
// post; what the caller may do (coordinator/access) is decided on the loop, before anything is done
// or answered. The rest runs on the loop's thread, except the slow parts of a call: parsing a job
// file, the message of thousands of events; and, on a thread of their own, explanations and
// exports. Only durable state is sent.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "coordinator/service/authenticator.h"
#include "coordinator/service/client_calls.h"
#include "coordinator/service/controller_runtime.h"
#include "coordinator/service/export_stream.h"
#include "coordinator/service/job_lookup.h"
#include "coordinator/service/unary_call.h"
#include "coordinator/service/watch_hub.h"
#include "coordinator/service/worker_service.h"
#include "coordinator/store/store.h"
#include "muster/v1/client_api.grpc.pb.h"

namespace muster {

class ClientService final : public v1::Client::CallbackService {
 public:
  static constexpr int kMaxEvents = 10000;            // of one ListEvents
  static constexpr std::size_t kMaxBesideLoop = 256;  // calls that wait for the pool
  static constexpr std::size_t kMaxQuestions = 3;     // explanations that are under way

  struct Parts {
    EventLoop& loop;
    ControllerRuntime& runtime;
    Store& store;
    const JobLookup& jobs;
    WatchHub& watches;
    WorkerService& workers;
    const Authenticator& authenticator;
    ClientCalls& calls;
    // Names of the pilots that were requested for the job and have not started.
    std::function<std::vector<std::string>(const JobId&)> pilots_for;
    std::string store_kind;  // of VersionResponse
  };
  ClientService(Parts parts, std::string cluster);

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* Submit(Context*, const v1::SubmitRequest*, v1::SubmitResponse*) override;
  Reactor* GetJob(Context*, const v1::GetJobRequest*, v1::Job*) override;
  Reactor* ListJobs(Context*, const v1::ListJobsRequest*, v1::ListJobsResponse*) override;
  Reactor* Cancel(Context*, const v1::CancelRequest*, v1::CancelResponse*) override;
  Reactor* Suspend(Context*, const v1::SuspendRequest*, v1::SuspendResponse*) override;
  Reactor* Resume(Context*, const v1::ResumeRequest*, v1::ResumeResponse*) override;
  Reactor* UpdateJob(Context*, const v1::UpdateJobRequest*, v1::UpdateJobResponse*) override;
  Reactor* HoldJob(Context*, const v1::HoldJobRequest*, v1::HoldJobResponse*) override;
  Reactor* ReleaseJob(Context*, const v1::ReleaseJobRequest*, v1::ReleaseJobResponse*) override;
  Reactor* ExplainJob(Context*, const v1::ExplainJobRequest*, v1::ExplainJobResponse*) override;
  Reactor* Drain(Context*, const v1::DrainRequest*, v1::DrainResponse*) override;
  Reactor* Undrain(Context*, const v1::UndrainRequest*, v1::UndrainResponse*) override;
  Reactor* InjectFault(Context*, const v1::InjectFaultRequest*, v1::InjectFaultResponse*) override;
  Reactor* VerifyCheckpoints(Context*, const v1::VerifyCheckpointsRequest*,
                             v1::VerifyCheckpointsResponse*) override;
  Reactor* ApplyQueues(Context*, const v1::ApplyQueuesRequest*, v1::ApplyQueuesResponse*) override;
  Reactor* ShowQueues(Context*, const v1::ShowQueuesRequest*, v1::ShowQueuesResponse*) override;
  Reactor* ShowUsage(Context*, const v1::ShowUsageRequest*, v1::ShowUsageResponse*) override;
  Reactor* WhoAmI(Context*, const v1::WhoAmIRequest*, v1::WhoAmIResponse*) override;
  Reactor* ApplyUsers(Context*, const v1::ApplyUsersRequest*, v1::ApplyUsersResponse*) override;
  Reactor* ShowUsers(Context*, const v1::ShowUsersRequest*, v1::ShowUsersResponse*) override;
  Reactor* ListAudit(Context*, const v1::ListAuditRequest*, v1::ListAuditResponse*) override;
  grpc::ServerWriteReactor<v1::ExportScheduleResponse>* ExportSchedule(
      Context*, const v1::ExportScheduleRequest*) override;
  Reactor* ListEvents(Context*, const v1::ListEventsRequest*, v1::ListEventsResponse*) override;
  Reactor* ListNodes(Context*, const v1::ListNodesRequest*, v1::ListNodesResponse*) override;
  Reactor* ReadLog(Context*, const v1::ReadLogRequest*, v1::ReadLogResponse*) override;
  Reactor* Version(Context*, const v1::VersionRequest*, v1::VersionResponse*) override;
  grpc::ServerWriteReactor<v1::WatchUpdate>* Watch(Context*, const v1::WatchRequest*) override;

 private:
  using Call = std::shared_ptr<UnaryCall>;

  // The slow part of a call, on the pool; any thread.
  void BesideLoop(const Call& call, std::function<void()> work);
  void ListStoredEvents(EventQuery query, v1::ListEventsResponse* response, const Call& call);
  // `found` is called on the loop with the job, now or later, unless the call ends before. Jobs
  // that the caller may not see are not there.
  void WithJob(const std::string& job, const Call& call, std::function<void(const JobView&)> found);
  // Takes the question if there is room for it, and answers it beside the loop.
  using Question = Result<std::shared_ptr<const WhyQuestion>>;
  void Export(const std::shared_ptr<ExportStream>& stream);
  void AnswerWhy(const std::function<Question(const Now&)>& ask, v1::ExplainJobResponse* response,
                 const Call& call);
  // A request about the job that it names as WithJob takes it; the answer names id and state.
  template <typename Accepted, typename Request, typename Response>
  void AskOfJob(Request event, Response* response, const Call& call);
  void AnswerEvents(EventQuery query, v1::ListEventsResponse* response, const Call& call);

  Parts parts_;
  const std::string cluster_;
  ClientCalls& calls_;
  std::size_t questions_ = 0;     // taken and not answered; on the loop
  std::atomic<int> exports_ = 0;  // streams that have not ended
  WorkerPool pool_{"calls", /*threads=*/1, kMaxBesideLoop};
  WorkerPool answers_{"answers", /*threads=*/1, kMaxQuestions + 1};
};

}  // namespace muster
