// For the tests of verbs: runs command lines in this process, against a coordinator that answers
// from a script, over loopback.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/jobs/testing/canned_job.h"
#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/token.h"
#include "muster/v1/client_api.grpc.pb.h"

namespace muster {

// Runs "muster WORDS" with `context` in the place of the program's own. A command line that the
// parser rejects is kInvalidArgument.
inline CommandResult RunMuster(CommandContext& context, std::vector<std::string> words) {
  words.insert(words.begin(), "muster");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  const verbs::Parsed parsed = ParseCommandLine(static_cast<int>(argv.size()), argv.data());
  if (!parsed.command) return InvalidArgument("the parser rejected the command line");
  context.passed_on = parsed.passed_on;
  return parsed.command(context);
}

// What one Watch call sends before it ends with `status`.
struct WatchScript {
  std::vector<v1::WatchUpdate> updates;
  grpc::Status status;
};

class FakeCoordinator final : public v1::Client::Service {
 public:
  grpc::Status Submit(grpc::ServerContext* context, const v1::SubmitRequest* request,
                      v1::SubmitResponse* response) override {
    const auto entry = context->client_metadata().find("authorization");
    authorization = std::string(entry->second.data(), entry->second.size());
    submitted = *request;
    if (!submit_status.ok()) return submit_status;
    response->set_id("7f3a9c1e2b");
    response->set_name("j");
    response->set_state(v1::JOB_STATE_QUEUED);
    return grpc::Status::OK;
  }

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::Job* response) override {
    if (const grpc::Status failure = TakeFailure(); !failure.ok()) return failure;
    if (request->job() != job.id()) return {grpc::StatusCode::NOT_FOUND, "no job has this id"};
    *response = job;
    return grpc::Status::OK;
  }

  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchUpdate>* writer) override {
    std::unique_lock lock(mutex);
    watched.push_back(*request);
    if (watches.empty()) {
      // A job about which nothing is new: the stream stays open until the client ends it.
      while (!context->IsCancelled()) silence.wait_for(lock, std::chrono::milliseconds(1));
      return grpc::Status::CANCELLED;
    }
    const WatchScript script = watches.front();
    watches.pop_front();
    for (const auto& update : script.updates) writer->Write(update);
    return script.status;
  }

  grpc::Status ReadLog(grpc::ServerContext*, const v1::ReadLogRequest* request,
                       v1::ReadLogResponse* response) override {
    const std::string& log = logs[static_cast<std::size_t>(request->rank())];
    const auto size = static_cast<std::int64_t>(log.size());
    const std::int64_t start = request->offset() < 0
                                   ? std::max<std::int64_t>(0, size + request->offset())
                                   : request->offset();
    const std::string data = log.substr(static_cast<std::size_t>(start), 10'000);
    response->set_data(data);
    response->set_next_offset(start + static_cast<std::int64_t>(data.size()));
    response->set_at_end(response->next_offset() == size);
    response->set_final(true);
    return grpc::Status::OK;
  }

  grpc::Status ListEvents(grpc::ServerContext*, const v1::ListEventsRequest* request,
                          v1::ListEventsResponse* response) override {
    if (const grpc::Status failure = TakeFailure(); !failure.ok()) return failure;
    for (std::uint64_t seq = request->after_seq() + 1; seq <= 5 && response->events_size() < 2;
         ++seq) {
      auto* event = response->add_events();
      event->set_seq(seq);
      event->set_message("event " + std::to_string(seq));
    }
    return grpc::Status::OK;
  }

  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*,
                        v1::ListJobsResponse* response) override {
    *response->add_jobs() = job;
    if (!cluster.states().empty()) *response->mutable_cluster() = cluster;
    return grpc::Status::OK;
  }

  grpc::Status Version(grpc::ServerContext*, const v1::VersionRequest*,
                       v1::VersionResponse* response) override {
    *response = version;
    response->set_cluster("lab");
    return grpc::Status::OK;
  }

  grpc::Status ListNodes(grpc::ServerContext*, const v1::ListNodesRequest*,
                         v1::ListNodesResponse* response) override {
    if (const grpc::Status failure = TakeFailure(); !failure.ok()) return failure;
    *response->add_nodes() = node;
    // One state after the other, the last one for good.
    if (node_states.empty()) return grpc::Status::OK;
    response->mutable_nodes(0)->set_state(node_states.front());
    if (node_states.size() > 1) node_states.pop_front();
    return grpc::Status::OK;
  }

  grpc::Status Suspend(grpc::ServerContext*, const v1::SuspendRequest* request,
                       v1::SuspendResponse* response) override {
    if (request->job() == "unknown") return {grpc::StatusCode::NOT_FOUND, "no such job"};
    suspended = *request;
    response->set_id("7f3a9c1e2b");
    response->set_state(v1::JOB_STATE_STOPPING);
    return grpc::Status::OK;
  }

  grpc::Status Cancel(grpc::ServerContext*, const v1::CancelRequest* request,
                      v1::CancelResponse* response) override {
    if (request->job() == "unknown") return {grpc::StatusCode::NOT_FOUND, "no such job"};
    if (request->job() == "over") return {grpc::StatusCode::FAILED_PRECONDITION, "job is over"};
    cancelled.push_back(*request);
    response->set_id(request->job());
    response->set_state(v1::JOB_STATE_CANCELLED);
    return grpc::Status::OK;
  }

  grpc::Status Resume(grpc::ServerContext*, const v1::ResumeRequest* request,
                      v1::ResumeResponse* response) override {
    if (request->job() != "llama-chat") return {grpc::StatusCode::NOT_FOUND, "no such job"};
    response->set_id("7f3a9c1e2b");
    response->set_state(v1::JOB_STATE_QUEUED);
    return grpc::Status::OK;
  }

  grpc::Status UpdateJob(grpc::ServerContext*, const v1::UpdateJobRequest* request,
                         v1::UpdateJobResponse* response) override {
    updated = *request;
    response->set_id("7f3a9c1e2b");
    response->set_state(v1::JOB_STATE_RUNNING);
    if (request->has_priority()) response->set_changed("priority 50 -> 80");
    return grpc::Status::OK;
  }

  grpc::Status HoldJob(grpc::ServerContext*, const v1::HoldJobRequest* request,
                       v1::HoldJobResponse* response) override {
    if (request->job() == "running")
      return {grpc::StatusCode::FAILED_PRECONDITION, "job running is running"};
    held.push_back(*request);
    response->set_id(request->job());
    response->set_state(v1::JOB_STATE_QUEUED);
    return grpc::Status::OK;
  }

  grpc::Status ReleaseJob(grpc::ServerContext*, const v1::ReleaseJobRequest* request,
                          v1::ReleaseJobResponse* response) override {
    released.push_back(request->job());
    response->set_id(request->job());
    response->set_state(v1::JOB_STATE_STARTING);
    return grpc::Status::OK;
  }

  grpc::Status ExplainJob(grpc::ServerContext*, const v1::ExplainJobRequest* request,
                          v1::ExplainJobResponse* response) override {
    explained = *request;
    if (!explain_status.ok()) return explain_status;
    *response = explanation;
    return grpc::Status::OK;
  }

  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override {
    drained = *request;
    response->set_state(v1::NODE_STATE_DRAINING);
    response->add_jobs("7f3a9c1e2b");
    return grpc::Status::OK;
  }

  grpc::Status Undrain(grpc::ServerContext*, const v1::UndrainRequest* request,
                       v1::UndrainResponse* response) override {
    undrained = request->node();
    response->set_state(v1::NODE_STATE_READY);
    return grpc::Status::OK;
  }

  grpc::Status InjectFault(grpc::ServerContext*, const v1::InjectFaultRequest* request,
                           v1::InjectFaultResponse* response) override {
    fault = *request;
    if (!fault_status.ok()) return fault_status;
    response->set_node("node-2");
    response->set_generation(4);
    return grpc::Status::OK;
  }

  grpc::Status VerifyCheckpoints(grpc::ServerContext*, const v1::VerifyCheckpointsRequest* request,
                                 v1::VerifyCheckpointsResponse* response) override {
    verified = request->job();
    if (!verify_status.ok()) return verify_status;
    for (const auto& checkpoint : job.checkpoints()) {
      if (checkpoint.refused().empty())
        response->set_whole(response->whole() + 1);
      else
        response->add_damaged(checkpoint.directory());
    }
    return grpc::Status::OK;
  }

  grpc::Status ApplyQueues(grpc::ServerContext*, const v1::ApplyQueuesRequest* request,
                           v1::ApplyQueuesResponse* response) override {
    applied = *request;
    if (!apply_status.ok()) return apply_status;
    response->set_version(queues.version() + (request->check_only() ? 0 : 1));
    response->add_changes("vision: guarantee 32 -> 48 GPUs");
    response->add_warnings("the guarantees come to 80 GPUs");
    return grpc::Status::OK;
  }

  grpc::Status ShowUsage(grpc::ServerContext*, const v1::ShowUsageRequest* request,
                         v1::ShowUsageResponse* response) override {
    usage_asked = *request;
    *response = usage;
    return usage_status;
  }

  grpc::Status ExportSchedule(grpc::ServerContext*, const v1::ExportScheduleRequest*,
                              grpc::ServerWriter<v1::ExportScheduleResponse>* writer) override {
    for (const char byte : recording) {
      v1::ExportScheduleResponse part;
      part.set_recording(std::string(1, byte));
      writer->Write(part);
    }
    return grpc::Status::OK;
  }

  grpc::Status ShowQueues(grpc::ServerContext*, const v1::ShowQueuesRequest*,
                          v1::ShowQueuesResponse* response) override {
    *response = queues;
    return grpc::Status::OK;
  }

  // How calls of GetJob, ListNodes and ListEvents end, in their order; OK once there is none left.
  std::deque<grpc::Status> failures;
  v1::ApplyQueuesRequest applied;
  grpc::Status apply_status;
  v1::ShowQueuesResponse queues;
  v1::ExplainJobRequest explained;
  v1::ExplainJobResponse explanation;
  grpc::Status explain_status;
  v1::ShowUsageRequest usage_asked;
  v1::ShowUsageResponse usage;
  grpc::Status usage_status;
  std::string recording;  // of ExportSchedule
  std::string verified;
  grpc::Status verify_status;
  std::mutex mutex;
  std::condition_variable silence;
  v1::VersionResponse version;
  v1::Node node;
  std::deque<v1::NodeState> node_states;
  v1::SuspendRequest suspended;
  std::optional<v1::UpdateJobRequest> updated;
  std::vector<v1::HoldJobRequest> held;
  std::vector<v1::CancelRequest> cancelled;
  std::vector<std::string> released;
  v1::DrainRequest drained;
  std::string undrained;
  std::optional<v1::InjectFaultRequest> fault;
  grpc::Status fault_status;
  std::string authorization;
  v1::SubmitRequest submitted;
  grpc::Status submit_status;
  v1::Job job = CannedJob();
  v1::Goodput cluster;
  std::deque<WatchScript> watches;
  std::vector<v1::WatchRequest> watched;
  std::vector<std::string> logs = std::vector<std::string>(2);

 private:
  grpc::Status TakeFailure() {
    if (failures.empty()) return grpc::Status::OK;
    const grpc::Status failure = failures.front();
    failures.pop_front();
    return failure;
  }
};

inline v1::WatchUpdate Update(v1::JobState state, std::uint64_t seq, const std::string& message) {
  v1::WatchUpdate update;
  *update.mutable_job() = CannedJob();
  update.mutable_job()->set_state(state);
  auto* event = update.add_events();
  event->set_seq(seq);
  event->set_severity("info");
  event->set_message(message);
  return update;
}

class CommandsTest : public testing::Test {
 protected:
  CommandsTest() {
    std::filesystem::create_directories(dir_ + "/coordinator");
    client_ = std::make_unique<ClusterClient>(dir_, interrupt_);
    context_ = std::make_unique<CommandContext>(CommandContext{*client_, terminal_});
  }
  ~CommandsTest() override {
    if (server_) server_->Shutdown();
  }

  void Serve() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&coordinator_);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);  // clients ping each second
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    token_ = *LoadOrCreateToken(dir_ + "/coordinator/token");
    ASSERT_TRUE(WriteEndpoint(dir_ + "/coordinator/endpoint.json",
                              {"127.0.0.1:" + std::to_string(port), "127.0.0.1:1", 1})
                    .ok());
  }

  CommandResult Run(std::vector<std::string> words) {
    return RunMuster(*context_, std::move(words));
  }

  std::string WriteJob(const std::string& text) {
    const std::string path = dir_ + "/job.yaml";
    EXPECT_TRUE(WriteFileAtomically(path, text).ok());
    return path;
  }

  const TempDirForTest temp_;
  const std::string dir_ = temp_.path();
  std::string token_;
  Interrupt interrupt_;
  std::ostringstream out_, err_;
  Terminal terminal_{out_, err_};
  std::unique_ptr<ClusterClient> client_;
  std::unique_ptr<CommandContext> context_;
  FakeCoordinator coordinator_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace muster
