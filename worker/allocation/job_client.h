// JobClient: the leading supervisor's calls to its own coordinator, about the allocation's one job.
//
// Owned by a Supervisor; loop thread only, gRPC's threads post. Each call ends within its limit and
// then calls `done` once; not after the client is gone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/rpc/endpoint.h"
#include "common/runtime/event_loop.h"
#include "worker/allocation/job_monitor.h"

namespace muster::worker {

// A node that the coordinator knows; ready: it places ranks there.
struct NodePicture {
  std::string name;
  bool ready = false;
};

class JobClient {
 public:
  // A coordinator on this host: `endpoint.grpc` is loopback, and calls carry its token.
  JobClient(EventLoop& loop, const Endpoint& endpoint, std::string token);
  ~JobClient();
  JobClient(const JobClient&) = delete;
  JobClient& operator=(const JobClient&) = delete;

  // The job's id. Idempotent by key.
  void Submit(const std::string& spec_yaml, const std::string& key,
              std::function<void(const Result<std::string>&)> done);
  void Get(const std::string& job, std::function<void(const Result<JobPicture>&)> done);
  void ListNodes(std::function<void(const Result<std::vector<NodePicture>>&)> done);
  void Suspend(const std::string& job, const SuspendJob& order,
               std::function<void(const Status&)> done);
  void Resume(const std::string& job, std::function<void(const Status&)> done);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::worker
