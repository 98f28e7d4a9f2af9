// ClientService: requests of the muster CLI, answered from the controller's views or by its
// replies.
//
// Owned by the server. gRPC's threads call the RPC functions, which only authorize and post; the
// rest runs on the loop's thread, except the slow parts of a call: parsing a job file, the message
// of thousands of events; and, on a thread of their own, explanations and exports. Only durable
// state is sent. Waiting calls are bounded by kMaxCalls and end with their caller; more are refused
// with RESOURCE_EXHAUSTED and counted.
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
  static constexpr int kMaxCalls = 4096;
  static constexpr int kMaxEvents = 10000;            // of one ListEvents
  static constexpr int kMaxPage = 1000;               // jobs or nodes of one page
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
    // Names of the pilots that were requested for the job and have not started.
    std::function<std::vector<std::string>(const JobId&)> pilots_for;
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
  grpc::ServerWriteReactor<v1::ExportScheduleResponse>* ExportSchedule(
      Context*, const v1::ExportScheduleRequest*) override;
  Reactor* ListEvents(Context*, const v1::ListEventsRequest*, v1::ListEventsResponse*) override;
  Reactor* ListNodes(Context*, const v1::ListNodesRequest*, v1::ListNodesResponse*) override;
  Reactor* ReadLog(Context*, const v1::ReadLogRequest*, v1::ReadLogResponse*) override;
  Reactor* Version(Context*, const v1::VersionRequest*, v1::VersionResponse*) override;
  grpc::ServerWriteReactor<v1::WatchUpdate>* Watch(Context*, const v1::WatchRequest*) override;

  std::uint64_t refused_calls() const { return refused_; }

 private:
  using Call = std::shared_ptr<UnaryCall>;

  // Authorizes and starts the call, on gRPC's thread.
  Reactor* Begin(Context* context, const std::function<void(const Call&)>& start);
  // The same on the loop, where the request may be read until `function` returns. The call must be
  // ended.
  Reactor* OnLoop(Context* context, std::function<void(const Call&)> function);
  // Hands the event to the controller runtime. `fill` puts the reply into the response; not called
  // if the caller has gone.
  template <typename Event>
  void Ask(Event event, const Call& call, std::function<void(const Reply&)> fill);
  void EndOnceDurable(const Call& call);
  // The slow part of a call, on the pool; any thread.
  void BesideLoop(const Call& call, std::function<void()> work);
  void ListStoredEvents(EventQuery query, v1::ListEventsResponse* response, const Call& call);
  // `found` is called on the loop with the job, now or later, unless the call ends before.
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
  void AnswerLog(const LogLocation& location, int rank, std::int64_t offset,
                 v1::ReadLogResponse* response, const Call& call);
  struct JobPage;
  void AddArchived(const std::shared_ptr<JobPage>& page, const Call& call);
  void EndPage(JobPage& page, const Call& call);

  Parts parts_;
  const std::string cluster_;
  std::atomic<int> calls_ = 0;
  std::atomic<std::uint64_t> refused_ = 0;
  std::size_t questions_ = 0;     // taken and not answered; on the loop
  std::atomic<int> exports_ = 0;  // streams that have not ended
  WorkerPool pool_{"calls", /*threads=*/1, kMaxBesideLoop};
  WorkerPool answers_{"answers", /*threads=*/1, kMaxQuestions + 1};
};

}  // namespace muster
