// NoSink: where a test drops the effects of a ControllerRuntime that it does not look at. Any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coordinator/service/controller_runtime.h"

namespace muster {

struct NoSink : EffectSink {
  void SendToWorker(const WorkerSend&) override {}
  void CloseWorker(const CloseSession&) override {}
  void OnJobsChanged(const std::vector<JobId>&) override {}
  void OnEvents(const std::vector<EventRecord>&) override {}
  void OnDecided(const Effects&) override {}
  void OnDiskBehind(std::size_t, std::size_t) override {}
  void OnUnread(const JobId&, const Status&) override {}
  void OnHigherEpoch(std::uint64_t) override {}
  void OnStoreFailed(const Status&) override {}
};

}  // namespace muster
