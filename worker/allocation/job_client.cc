#include "worker/allocation/job_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/token.h"
#include "muster/v1/client_api.grpc.pb.h"
#include "worker/allocation/loop_gate.h"
#include "worker/allocation/open_calls.h"

namespace muster::worker {
namespace {

constexpr std::chrono::seconds kLimit{5};

// Between two attempts it waits, for nodes or for its turn.
bool HasAttempt(const v1::Job& job) {
  return job.attempts_size() > 0 && job.attempts(job.attempts_size() - 1).ended_unix_ms() == 0;
}

JobPhase PhaseOf(const v1::Job& job) {
  switch (job.state()) {
    case v1::JOB_STATE_QUEUED: return JobPhase::kWaiting;
    case v1::JOB_STATE_SUSPENDED: return JobPhase::kSuspended;
    case v1::JOB_STATE_SUCCEEDED: return JobPhase::kSucceeded;
    case v1::JOB_STATE_FAILED: return JobPhase::kFailed;
    case v1::JOB_STATE_CANCELLED: return JobPhase::kCancelled;
    default: return HasAttempt(job) ? JobPhase::kActive : JobPhase::kWaiting;
  }
}

JobPicture PictureOf(const v1::Job& job) {
  JobPicture picture{.phase = PhaseOf(job),
                     .reason = job.reason(),
                     .checkpoint_seconds = job.checkpoint_seconds(),
                     .step = job.step()};
  for (const v1::CheckpointInfo& checkpoint : job.checkpoints())
    picture.checkpoint = std::max(picture.checkpoint, checkpoint.step());
  return picture;
}

}  // namespace

struct JobClient::Impl {
  using Calls = v1::Client::StubInterface::async_interface;
  template <typename Request, typename Response>
  using Method = void (Calls::*)(grpc::ClientContext*, const Request*, Response*,
                                 std::function<void(grpc::Status)>);

  Impl(EventLoop& loop_in, const Endpoint& endpoint, std::string token_in)
      : gate(LoopGate::To(loop_in)),
        token(std::move(token_in)),
        stub(v1::Client::NewStub(OpenChannel(endpoint.grpc))) {}
  ~Impl() {
    gate->Close();
    calls->CancelAndWait();
  }

  // `done` gets the status and the response, on the loop.
  template <typename Request, typename Response, typename Done>
  void Call(Method<Request, Response> method, Request request, Done done) {
    struct State : OpenCall {
      Request request;
      Response response;
    };
    auto state = std::make_shared<State>();
    state->request = std::move(request);
    state->context.set_deadline(SystemDeadline(kLimit));
    AttachToken(state->context, token);
    const std::uint64_t id = calls->Add(state);
    auto on_done = [id, calls = calls, gate = gate,
                    done = std::move(done)](const grpc::Status& status) {
      calls->Ended();
      gate->Post([id, calls, done, status] {
        const auto call = std::static_pointer_cast<State>(calls->Take(id));
        if (call) done(FromGrpcStatus(status), call->response);
      });
    };
    (stub->async()->*method)(&state->context, &state->request, &state->response,
                             std::move(on_done));
  }

  const std::shared_ptr<LoopGate> gate;
  const std::string token;
  const std::unique_ptr<v1::Client::Stub> stub;
  const std::shared_ptr<OpenCalls> calls = std::make_shared<OpenCalls>();
};

JobClient::JobClient(EventLoop& loop, const Endpoint& endpoint, std::string token)
    : impl_(std::make_unique<Impl>(loop, endpoint, std::move(token))) {}
JobClient::~JobClient() = default;

void JobClient::Submit(const std::string& spec_yaml, const std::string& key,
                       std::function<void(const Result<std::string>&)> done) {
  v1::SubmitRequest request;
  request.set_spec_yaml(spec_yaml);
  request.set_key(key);
  impl_->Call(&Impl::Calls::Submit, std::move(request),
              [done = std::move(done)](const Status& status, const v1::SubmitResponse& response) {
                done(status.ok() ? Result<std::string>(response.id()) : status);
              });
}

void JobClient::Get(const std::string& job, std::function<void(const Result<JobPicture>&)> done) {
  v1::GetJobRequest request;
  request.set_job(job);
  impl_->Call(&Impl::Calls::GetJob, std::move(request),
              [done = std::move(done)](const Status& status, const v1::Job& response) {
                if (!status.ok()) return done(status);
                done(PictureOf(response));
              });
}

void JobClient::ListNodes(std::function<void(const Result<std::vector<NodePicture>>&)> done) {
  impl_->Call(
      &Impl::Calls::ListNodes, v1::ListNodesRequest(),
      [done = std::move(done)](const Status& status, const v1::ListNodesResponse& response) {
        if (!status.ok()) return done(status);
        std::vector<NodePicture> nodes;
        for (const v1::Node& node : response.nodes())
          nodes.push_back({node.name(), node.state() == v1::NODE_STATE_READY});
        done(nodes);
      });
}

void JobClient::Suspend(const std::string& job, const SuspendJob& order,
                        std::function<void(const Status&)> done) {
  v1::SuspendRequest request;
  request.set_job(job);
  request.set_by_seconds(order.by_seconds);
  request.set_reason(order.reason);
  impl_->Call(
      &Impl::Calls::Suspend, std::move(request),
      [done = std::move(done)](const Status& status, const v1::SuspendResponse&) { done(status); });
}

void JobClient::Resume(const std::string& job, std::function<void(const Status&)> done) {
  v1::ResumeRequest request;
  request.set_job(job);
  impl_->Call(
      &Impl::Calls::Resume, std::move(request),
      [done = std::move(done)](const Status& status, const v1::ResumeResponse&) { done(status); });
}

}  // namespace muster::worker
