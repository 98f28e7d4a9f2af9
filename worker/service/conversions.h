// Between the wire's messages (proto/muster/v1) and the worker's plain values. Pure; any thread.
#pragma once

#include <optional>
#include <string>

#include "muster/v1/worker_api.pb.h"
#include "worker/agent/messages.h"

namespace muster::worker {

// What a Hello says of the worker itself.
struct WorkerIdentity {
  std::string node;
  std::string address;
  std::string host_id;
  int slots = 0;
  std::int64_t pid = 0;
  int metrics_port = 0;
  std::string instance;
  std::string failure_domain;
  bool allows_faults = false;
  std::string pilot;                // key of the pilot job that it runs in; empty: none
  std::vector<std::string> report;  // LookAtNode of worker/fabric
  int gpus = 0;                     // that its ranks get
};

v1::WorkerMessage MakeHello(const WorkerIdentity& identity,
                            const std::vector<HostedGeneration>& hosted);

// Empty for a trainer's report that is malformed or of an unknown kind.
std::optional<v1::WorkerMessage> ToProto(const WorkerMessage& message);

// Empty for a message of a newer protocol.
std::optional<CoordinatorMessage> FromProto(const v1::CoordinatorMessage& message);

}  // namespace muster::worker
