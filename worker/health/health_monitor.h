// HealthMonitor: what a worker detects on its own node: errors of GPUs, shortage of memory, a disk
// that cannot be written, devices that others have, and notices from outside that the node will be
// taken away.
//
// Combines the readers of this folder and reports to the coordinator by notices (notice_board.h).
// Owned by WorkerServer. Loop thread only; what blocks runs on threads of its own, which the
// destructor joins. Destroy it after the loop has ended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "worker/fabric/node_devices.h"
#include "worker/health/exit_facts.h"
#include "worker/health/host_memory.h"
#include "worker/health/kernel_log.h"
#include "worker/health/notice_board.h"
#include "worker/health/nvml_watch.h"
#include "worker/health/stop_notice.h"

namespace muster::worker {

struct HealthOptions {
  std::string disk_dir;                    // checked for being writable
  std::string kernel_log = "/dev/kmsg";    // empty: not read
  std::string nvml = "libnvidia-ml.so.1";  // empty: not loaded
  std::vector<NodeDevice> devices;         // by whose ids notices name GPUs
  std::string device_locks;  // where jobs of all workers lock them; empty: not watched
  std::string jobs_dir;      // has those of this node
  StopNoticeOptions stop_notice;
  bool same_pids = InInitialPidNamespace();  // see ExitFacts
  std::function<MemoryReading()> read_memory = &ReadHostMemory;
  Duration interval = std::chrono::seconds(1);
};

class HealthMonitor {
 public:
  HealthMonitor(EventLoop& loop, HealthOptions options,
                std::function<void(const NodeNotice&)> tell);
  ~HealthMonitor();
  HealthMonitor(const HealthMonitor&) = delete;
  HealthMonitor& operator=(const HealthMonitor&) = delete;

  // What cannot be watched on this host is logged once, and left out.
  void Start();
  // The worker itself received the order to go.
  void AskToDrain(const std::string& why, double deadline_seconds, bool by_pilot);
  // A new stream: all notices are sent again.
  void OnConnected();

  void OnRankStarted(const RankStarted& started) { facts_.OnStarted(started); }
  void OnJobReleased(const JobId& job) { facts_.OnReleased(job); }
  // Adds the kernel log's facts about the process, including the newest lines, and to a failure the
  // node's current problems.
  void Complete(RankExited* exited);
  void Complete(std::vector<HostedGeneration>* hosted);

  const NoticeBoard& board() const { return control_block_; }
  std::uint64_t xids() const { return xids_; }
  std::uint64_t oom_kills() const { return oom_kills_; }

 private:
  void OnKernelEvent(const KernelEvent& event);
  void OnNvmlEvent(const NvmlEvent& event);
  // `gpu`: its index, or its PCI address where that is not known.
  void OnXid(const std::string& gpu, int xid, const std::string& detail);
  void OnRecoveryAction(const std::string& gpu, int action);
  std::vector<std::string> DevicesOf(const std::string& gpu) const;
  // With its UUID where that is known: "0 (GPU-8a0e...)".
  std::string NameOf(const std::string& gpu) const;
  void Tick();
  void CheckMemory();
  void StartDiskCheck();
  void OnDiskChecked(const std::string& problem);
  void StartDeviceCheck();
  void StartStopCheck();
  void Flush();

  EventLoop& loop_;
  const HealthOptions options_;
  const std::function<void(const NodeNotice&)> tell_;
  NoticeBoard control_block_;
  ExitFacts facts_;
  MemoryPressure memory_;
  std::uint64_t xids_ = 0;
  std::uint64_t oom_kills_ = 0;
  TimePoint next_disk_check_;
  std::optional<TimePoint> disk_check_since_;
  bool device_check_under_way_ = false;
  bool stop_check_under_way_ = false;
  bool stop_noticed_ = false;
  Timer timer_;
  const UniqueFd cancel_;
  std::unique_ptr<KernelLog> kernel_log_;
  std::unique_ptr<NvmlWatch> nvml_;
  WorkerPool pool_;  // joins before what its work uses is destroyed
};

}  // namespace muster::worker
