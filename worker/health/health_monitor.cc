#include "worker/health/health_monitor.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <set>
#include <utility>

#include "common/base/strings.h"
#include "common/telemetry/log.h"
#include "worker/health/devices_elsewhere.h"
#include "worker/health/disk_check.h"
#include "worker/health/gpu_index.h"
#include "worker/health/xid.h"

namespace muster::worker {
namespace {

// One each for the disk, the locks of devices and the stop notice: none waits for another.
constexpr int kThreads = 3;
constexpr std::size_t kQueue = 4;
constexpr std::chrono::seconds kDiskInterval{5};
// A disk that has not answered for this long is reported.
constexpr std::chrono::seconds kDiskTimeout{10};
// A momentary error stays on the board for this long.
constexpr std::chrono::seconds kPassingXid{60};

constexpr char kTakenKey[] = "taken:";

std::string XidKey(const std::string& gpu) { return "xid:" + gpu + ":"; }

std::string Sentence(const std::string& gpu, std::string what, std::string_view advice) {
  std::string text = "GPU " + gpu + ": " + std::move(what);
  if (!advice.empty()) text += "; " + std::string(advice);
  return text;
}

}  // namespace

HealthMonitor::HealthMonitor(EventLoop& loop, HealthOptions options,
                             std::function<void(const NodeNotice&)> tell)
    : loop_(loop),
      options_(std::move(options)),
      tell_(std::move(tell)),
      facts_(options_.same_pids),
      timer_(loop),
      cancel_(::eventfd(0, EFD_CLOEXEC)),
      pool_("health", kThreads, kQueue) {}

HealthMonitor::~HealthMonitor() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(cancel_.get(), &one, sizeof one);
}

void HealthMonitor::Start() {
  if (!options_.kernel_log.empty()) {
    auto log = KernelLog::Open(loop_, options_.kernel_log,
                               [this](const KernelEvent& event) { OnKernelEvent(event); });
    if (log.ok())
      kernel_log_ = *std::move(log);
    else
      Log().info("the kernel's log is not read: {}", log.status().message());
  }
  if (!options_.nvml.empty()) {
    auto watch = NvmlWatch::Start(options_.nvml, [this](const NvmlEvent& event) {
      loop_.Post([this, event] { OnNvmlEvent(event); });
    });
    if (watch.ok()) {
      nvml_ = *std::move(watch);
      Log().info("{} GPUs are watched for errors", nvml_->gpus());
    } else if (watch.status().code() != StatusCode::kNotFound) {
      Log().warn("GPUs are watched by the kernel's log alone: {}", watch.status().message());
    }
  }
  Tick();
}

void HealthMonitor::AskToDrain(const std::string& why, double deadline_seconds, bool by_pilot) {
  control_block_.Set("drain:worker",
                     {.kind = NodeNoticeKind::kDrain,
                      .detail = why,
                      .deadline_seconds = deadline_seconds,
                      .by_pilot = by_pilot},
                     SystemClock().Now());
  Flush();
}

void HealthMonitor::OnConnected() {
  control_block_.Reconnected();
  Flush();
}

void HealthMonitor::Complete(RankExited* exited) {
  if (exited->end.exit == ProcessExit{}) return;
  if (kernel_log_) kernel_log_->Drain();
  facts_.Complete(exited);
  // It does not explain a rank that an abort ended.
  if (exited->end.ended) return;
  for (const std::string& trouble : control_block_.Troubles())
    exited->facts.push_back("node: " + trouble);
}

void HealthMonitor::Complete(std::vector<HostedGeneration>* hosted) { facts_.Complete(hosted); }

void HealthMonitor::OnKernelEvent(const KernelEvent& event) {
  if (const auto* kill = std::get_if<OomKillEvent>(&event)) {
    facts_.OnKernelEvent(*kill);
    ++oom_kills_;
    Log().warn("the kernel ended process {} ({}) because memory ran out", kill->pid, kill->name);
  } else if (const auto* xid = std::get_if<XidEvent>(&event)) {
    const std::string gpu = GpuIndex(options_.devices, xid->device);
    XidEvent named = *xid;
    named.device = NameOf(gpu);
    facts_.OnKernelEvent(named);
    OnXid(gpu, xid->xid, xid->detail);
  }
}

void HealthMonitor::OnNvmlEvent(const NvmlEvent& event) {
  const std::string gpu = std::to_string(event.gpu);
  if (event.kind == NvmlEvent::Kind::kXid)
    OnXid(gpu, event.value, "");
  else
    OnRecoveryAction(gpu, event.value);
}

std::vector<std::string> HealthMonitor::DevicesOf(const std::string& gpu) const {
  std::vector<std::string> ids = DeviceIdsOf(options_.devices, gpu);
  if (ids.empty()) ids.push_back(gpu);
  return ids;
}

std::string HealthMonitor::NameOf(const std::string& gpu) const {
  for (const NodeDevice& one : options_.devices)
    if (std::to_string(one.gpu_index) == gpu && one.gpu != gpu) return gpu + " (" + one.gpu + ")";
  return gpu;
}

void HealthMonitor::OnXid(const std::string& gpu, int xid, const std::string& detail) {
  ++xids_;
  if (const auto action = ParseRecoveryAction(detail)) return OnRecoveryAction(gpu, *action);
  const XidVerdict verdict = JudgeXid(xid);
  std::string what = "Xid " + std::to_string(xid);
  if (!verdict.what.empty())
    what += ", " + std::string(verdict.what);
  else if (!detail.empty())
    what += ", " + detail;
  const TimePoint now = SystemClock().Now();
  control_block_.Set(XidKey(gpu) + std::to_string(xid),
                     {.kind = NodeNoticeKind::kXid,
                      .detail = Sentence(NameOf(gpu), std::move(what), verdict.advice),
                      .devices = DevicesOf(gpu),
                      .fatal = verdict.fatal()},
                     now, verdict.fatal() ? TimePoint::max() : now + kPassingXid);
  Flush();
}

void HealthMonitor::OnRecoveryAction(const std::string& gpu, int action) {
  const XidVerdict verdict = JudgeRecoveryAction(action);
  if (verdict.fatal()) {
    control_block_.Set(XidKey(gpu) + "action",
                       {.kind = NodeNoticeKind::kXid,
                        .detail = Sentence(NameOf(gpu), std::string(verdict.what), verdict.advice),
                        .devices = DevicesOf(gpu),
                        .fatal = true},
                       SystemClock().Now());
  } else {
    // The driver requests no action any more: the GPU was repaired.
    control_block_.ClearAll(XidKey(gpu));
  }
  Flush();
}

void HealthMonitor::Tick() {
  CheckMemory();
  if (!options_.disk_dir.empty()) StartDiskCheck();
  if (!options_.device_locks.empty()) StartDeviceCheck();
  if (options_.stop_notice.any()) StartStopCheck();
  Flush();
  timer_.Start(options_.interval, [this] { Tick(); });
}

void HealthMonitor::CheckMemory() {
  const TimePoint now = SystemClock().Now();
  if (memory_.Update(options_.read_memory(), now))
    control_block_.Set("memory",
                       {.kind = NodeNoticeKind::kMemoryPressure, .detail = memory_.detail()}, now);
  else
    control_block_.Clear("memory");
}

void HealthMonitor::StartDiskCheck() {
  const TimePoint now = SystemClock().Now();
  if (disk_check_since_) {
    if (now - *disk_check_since_ >= kDiskTimeout)
      control_block_.Set("disk",
                         {.kind = NodeNoticeKind::kDisk,
                          .detail = "the disk of " + options_.disk_dir + " does not answer"},
                         now);
    return;
  }
  if (now < next_disk_check_) return;
  next_disk_check_ = now + kDiskInterval;
  const bool taken = pool_.TrySubmit([this] {
    loop_.Post([this, problem = CheckDisk(options_.disk_dir)] { OnDiskChecked(problem); });
  });
  if (taken) disk_check_since_ = now;
}

void HealthMonitor::OnDiskChecked(const std::string& problem) {
  disk_check_since_.reset();
  if (problem.empty())
    control_block_.Clear("disk");
  else
    control_block_.Set("disk", {.kind = NodeNoticeKind::kDisk, .detail = problem},
                       SystemClock().Now());
  Flush();
}

void HealthMonitor::StartDeviceCheck() {
  if (device_check_under_way_) return;
  device_check_under_way_ = pool_.TrySubmit([this] {
    std::vector<std::string> ids;
    for (const NodeDevice& one : options_.devices) ids.push_back(one.device.id);
    loop_.Post([this, taken = DevicesElsewhere(options_.device_locks, options_.jobs_dir, ids)] {
      device_check_under_way_ = false;
      std::set<std::string> keys;
      for (const auto& [why, devices] : taken) {
        control_block_.Set(*keys.insert(kTakenKey + why).first,
                           {.kind = NodeNoticeKind::kDevicesInUse,
                            .detail = Join(devices) + " " + why,
                            .devices = devices},
                           SystemClock().Now());
      }
      control_block_.ClearAll(kTakenKey, keys);
      Flush();
    });
  });
}

void HealthMonitor::StartStopCheck() {
  // A notice is not withdrawn: the drain that it caused continues.
  if (stop_check_under_way_ || stop_noticed_) return;
  stop_check_under_way_ = pool_.TrySubmit([this] {
    auto notice = CheckStopNotice(options_.stop_notice, cancel_.get());
    loop_.Post([this, notice] {
      stop_check_under_way_ = false;
      if (!notice) return;
      stop_noticed_ = true;
      control_block_.Set("drain:notice", *notice, SystemClock().Now());
      Flush();
    });
  });
}

void HealthMonitor::Flush() {
  for (const NodeNotice& notice : control_block_.Due(SystemClock().Now())) tell_(notice);
}

}  // namespace muster::worker
