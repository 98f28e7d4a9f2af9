// The whole coordinator in this process, on loopback, with fake workers and a real client.
//
// For tests; one thread drives it.
#pragma once

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/cluster_paths.h"
#include "common/base/testing/temp_dir.h"
#include "common/base/unique_fd.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/token.h"
#include "coordinator/server.h"
#include "muster/v1/client_api.grpc.pb.h"
#include "tests/support/fake_worker.h"

namespace muster {

using muster::testing::FakeWorker;
using muster::testing::FakeWorkerOptions;

inline constexpr auto kLimit = std::chrono::seconds(10);

inline std::string Spec(const std::string& name, int nodes, const std::string& more = "") {
  return "name: " + name + "\nworkdir: /tmp/muster-never-written/" + name +
         "\nresources: {nodes: " + std::to_string(nodes) +
         ", ranks_per_node: 1}\n"
         "train:\n"
         "  model: {path: base}\n"
         "  data: {train: rows.jsonl}\n"
         "  schedule: {max_steps: 100}\n" +
         more;
}

class ServerTest : public ::testing::Test {
 protected:
  ~ServerTest() override { StopServer(); }

  ServerOptions Options() const {
    ServerOptions options;
    options.dir = dir_;
    options.listen = "unix:" + dir_ + "/grpc.sock";
    options.handle_signals = false;
    return options;
  }
  void StartServer() { StartServer(Options()); }
  void StartServer(ServerOptions options) {
    auto server = Server::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    thread_ = std::thread([this] { outcome_ = server_->Run(); });
    token_ = *LoadToken(ClusterPaths{dir_}.Token());
    client_ = v1::Client::NewStub(OpenChannel(server_->endpoint().grpc));
  }
  void StopServer() {
    if (!server_) return;
    server_->Stop();
    thread_.join();
    server_.reset();
  }

  std::unique_ptr<grpc::ClientContext> Context() const {
    auto context = std::make_unique<grpc::ClientContext>();
    AttachToken(*context, token_);
    context->set_deadline(std::chrono::system_clock::now() + kLimit);
    return context;
  }
  template <typename Request, typename Response>
  Status Call(grpc::Status (v1::Client::Stub::*method)(grpc::ClientContext*, const Request&,
                                                       Response*),
              const Request& request, Response* response) {
    return FromGrpcStatus((client_.get()->*method)(Context().get(), request, response));
  }
  Result<v1::SubmitResponse> Submit(const std::string& spec, const std::string& key = "") {
    v1::SubmitRequest request;
    request.set_spec_yaml(spec);
    request.set_key(key);
    v1::SubmitResponse response;
    if (const Status status = Call(&v1::Client::Stub::Submit, request, &response); !status.ok()) {
      return status;
    }
    return response;
  }
  // The recording of ExportSchedule.
  Result<std::string> Export() {
    const auto context = Context();
    const auto reader = client_->ExportSchedule(context.get(), {});
    std::string recording;
    for (v1::ExportScheduleResponse part; reader->Read(&part);) recording += part.recording();
    if (const Status status = FromGrpcStatus(reader->Finish()); !status.ok()) return status;
    return recording;
  }
  std::string SubmitId(const std::string& spec) {
    const auto response = Submit(spec);
    EXPECT_TRUE(response.ok()) << response.status().ToString();
    return response.ok() ? response->id() : "";
  }
  Result<v1::Job> Get(const std::string& job) {
    v1::GetJobRequest request;
    request.set_job(job);
    v1::Job response;
    if (const Status status = Call(&v1::Client::Stub::GetJob, request, &response); !status.ok()) {
      return status;
    }
    return response;
  }

  // Watches until an update satisfies `wanted`; the last update seen.
  v1::WatchUpdate WatchUntil(const std::string& job,
                             const std::function<bool(const v1::Job&)>& wanted) {
    const auto context = Context();
    v1::WatchRequest request;
    request.set_job(job);
    const auto reader = client_->Watch(context.get(), request);
    v1::WatchUpdate update;
    while (reader->Read(&update) && !wanted(update.job())) {
    }
    context->TryCancel();
    EXPECT_TRUE(wanted(update.job()))
        << "the watch of " << job << " ended in state " << v1::JobState_Name(update.job().state());
    return update;
  }
  v1::Job WaitForState(const std::string& job, v1::JobState state) {
    return WatchUntil(job, [state](const v1::Job& j) { return j.state() == state; }).job();
  }
  std::vector<std::string> EventKinds(const std::string& job) {
    v1::ListEventsRequest request;
    request.set_job(job);
    v1::ListEventsResponse response;
    EXPECT_TRUE(Call(&v1::Client::Stub::ListEvents, request, &response).ok());
    std::vector<std::string> kinds;
    for (const v1::Event& event : response.events()) kinds.push_back(event.kind());
    return kinds;
  }

  v1::Node FindNode(const std::string& name) {
    v1::ListNodesResponse nodes;
    EXPECT_TRUE(Call(&v1::Client::Stub::ListNodes, v1::ListNodesRequest(), &nodes).ok());
    for (const v1::Node& node : nodes.nodes()) {
      if (node.name() == name) return node;
    }
    return {};
  }

  std::unique_ptr<FakeWorker> Worker(FakeWorkerOptions options) {
    auto worker =
        std::make_unique<FakeWorker>(server_->endpoint().grpc, token_, std::move(options));
    const Status status = worker->Connect();
    EXPECT_TRUE(status.ok()) << status.ToString();
    return worker;
  }

  const TempDirForTest temp_;
  std::string dir_ = temp_.path();
  std::unique_ptr<Server> server_;
  std::thread thread_;
  Status outcome_;
  std::string token_;
  std::unique_ptr<v1::Client::Stub> client_;
};

// The answer to GET `path`, head and body.
inline std::string HttpGet(const std::string& address, const std::string& path) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) return "";
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  if (::write(fd.get(), request.data(), request.size()) < 0) return "";
  std::string answer;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(fd.get(), buffer, sizeof buffer)) > 0;) {
    answer.append(buffer, static_cast<std::size_t>(n));
  }
  return answer;
}

}  // namespace muster
