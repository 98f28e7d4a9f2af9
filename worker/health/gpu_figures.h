// GpuFigures: identity and state of the node's GPUs, for /metrics, from NVIDIA's management
// library, which is loaded at run time if there is one.
//
// GpuReader calls the library and may wait as long as a failing GPU blocks it; GpuMonitor has a
// thread for that, and the loop sees the last reading.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"

namespace muster::worker {

// Empty: this GPU does not report it.
struct GpuFigures {
  int index = 0;
  std::string uuid;
  std::optional<double> utilization;  // 0 to 1
  std::optional<double> memory_used_bytes;
  std::optional<double> memory_bytes;
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
  std::optional<double> sm_clock_hertz;

  friend bool operator==(const GpuFigures&, const GpuFigures&) = default;
};

// Any one thread at a time.
class GpuReader {
 public:
  // kNotFound: there is no such library; other errors name what cannot be used.
  static Result<std::unique_ptr<GpuReader>> Open(const std::string& library);
  ~GpuReader();
  GpuReader(const GpuReader&) = delete;
  GpuReader& operator=(const GpuReader&) = delete;

  // By index. One that cannot be queried at all is left out.
  std::vector<GpuFigures> Read();

 private:
  class Impl;
  explicit GpuReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Owned by WorkerServer, loop thread. The destructor waits for a reading under way.
class GpuMonitor {
 public:
  // `library` empty: there are no GPUs to see.
  GpuMonitor(EventLoop& loop, std::string library, Duration interval);

  // What cannot be read on this host is logged once.
  void Start();
  const std::vector<GpuFigures>& newest() const { return newest_; }

 private:
  void ReadAgain();

  EventLoop& loop_;
  const std::string library_;
  const Duration interval_;
  std::vector<GpuFigures> newest_;
  std::shared_ptr<GpuReader> reader_;  // used by the pool's thread alone
  Timer timer_;
  WorkerPool pool_;  // joins before what its work uses is destroyed
};

}  // namespace muster::worker
