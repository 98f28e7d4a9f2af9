// A coordinator for tests: serves the worker stream in this process and writes the endpoint and
// token files of a cluster directory. The test decides what it sends and waits for what it
// receives.
//
// Thread-safe; one worker at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/version.h"
#include "muster/v1/worker_api.pb.h"

namespace muster::worker {

class FakeCoordinatorForTest {
 public:
  struct Options {
    int protocol_version = kProtocolVersion;      // another one: every Hello is refused
    int max_protocol_version = kProtocolVersion;  // that it says it speaks
    std::uint64_t epoch = 0;
  };

  FakeCoordinatorForTest(const std::string& cluster_dir, Options options);
  ~FakeCoordinatorForTest();

  void Send(const v1::CoordinatorMessage& message);
  // The next message that `wanted` accepts; those before it are skipped. Empty after 10 s.
  std::optional<v1::WorkerMessage> Await(
      const std::function<bool(const v1::WorkerMessage&)>& wanted);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::worker
