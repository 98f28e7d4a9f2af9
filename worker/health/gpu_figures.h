// GpuFigures: what the node's GPUs are and how they are, for /metrics, from NVIDIA's management
// library, which is loaded at run time where there is one.
//
// GpuReader asks the library and may wait as long as a GPU that is ill lets it; GpuMonitor has a
// thread of its own for that, and the loop sees what was read last.
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

// Nothing: this GPU does not tell.
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
  // kNotFound: there is no such library; other errors say what of it cannot be used.
  static Result<std::unique_ptr<GpuReader>> Open(const std::string& library);
  ~GpuReader();
  GpuReader(const GpuReader&) = delete;
  GpuReader& operator=(const GpuReader&) = delete;

  // By index. One that cannot be asked at all is left out.
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
