// A substitute for NVIDIA's management library: two GPUs with twelve links each, the second cut
// into parts, whose events and recovery actions the test says by the two functions at the end.
// Tests only; thread-safe.

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>

#include "worker/fabric/nvml_abi.h"

namespace {

namespace nvml = muster::worker::nvml;

constexpr unsigned kGpus = 2;
constexpr nvml::Return kInvalid = 2, kNotSupported = 3;

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  bool initialised = false;
  bool registered[kGpus] = {};
  unsigned actions[kGpus] = {};
  nvml::Return answers[kGpus] = {};
  std::deque<nvml::EventData> events;
};

State& TheState() {
  static State state;
  return state;
}

constexpr unsigned kLinks = 12;
constexpr unsigned kParts = 2;

char devices[kGpus];
char parts[kParts];
nvml::Device DeviceAt(unsigned index) { return &devices[index]; }

}  // namespace

extern "C" {

nvml::Return nvmlInit_v2() {
  TheState().initialised = true;
  return nvml::kSuccess;
}
nvml::Return nvmlShutdown() {
  TheState().initialised = false;
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetCount_v2(unsigned* count) {
  *count = kGpus;
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml::Device* device) {
  if (index >= kGpus) return kInvalid;
  *device = DeviceAt(index);
  return TheState().answers[index];
}
nvml::Return nvmlEventSetCreate(nvml::EventSet* set) {
  *set = &TheState();
  return nvml::kSuccess;
}
nvml::Return nvmlEventSetFree(nvml::EventSet) { return nvml::kSuccess; }

nvml::Return nvmlDeviceRegisterEvents(nvml::Device device, unsigned long long types,
                                      nvml::EventSet) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  for (unsigned i = 0; i < kGpus; ++i)
    if (device == DeviceAt(i)) state.registered[i] = (types & nvml::kXidCriticalError) != 0;
  return nvml::kSuccess;
}

nvml::Return nvmlEventSetWait_v2(nvml::EventSet, nvml::EventData* data, unsigned milliseconds) {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  if (!state.changed.wait_for(lock, std::chrono::milliseconds(milliseconds),
                              [&] { return !state.events.empty(); }))
    return nvml::kTimeout;
  *data = state.events.front();
  state.events.pop_front();
  return nvml::kSuccess;
}

nvml::Return nvmlDeviceGetFieldValues(nvml::Device device, int count, nvml::FieldValue* values) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  for (int at = 0; at < count; ++at) {
    values[at].status = kNotSupported;
    for (unsigned i = 0; i < kGpus; ++i) {
      if (device != DeviceAt(i) || values[at].field != nvml::kRecoveryActionField) continue;
      values[at].status = nvml::kSuccess;
      values[at].value.as_unsigned = state.actions[i];
    }
  }
  return nvml::kSuccess;
}

nvml::Return nvmlDeviceGetUUID(nvml::Device device, char* uuid, unsigned length) {
  for (unsigned i = 0; i < kGpus; ++i)
    if (device == DeviceAt(i)) std::snprintf(uuid, length, "GPU-%08u-aaaa", i);
  for (unsigned i = 0; i < kParts; ++i)
    if (device == &parts[i]) std::snprintf(uuid, length, "MIG-%08u-bbbb", i);
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetName(nvml::Device device, char* name, unsigned length) {
  const bool part = device == &parts[0] || device == &parts[1];
  std::snprintf(name, length, "%s", part ? "Test GPU MIG 1g" : "Test GPU");
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetPciInfo_v3(nvml::Device device, nvml::PciInfo* info) {
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%s:00.0",
                device == DeviceAt(0) ? "3B" : "AF");
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetNvLinkState(nvml::Device, unsigned link, unsigned* active) {
  *active = link < kLinks ? 1 : 0;
  return link < kLinks ? nvml::kSuccess : kInvalid;
}
// A switch.
nvml::Return nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml::Device, unsigned, nvml::PciInfo* peer) {
  std::snprintf(peer->bus_id, sizeof peer->bus_id, "00000000:05:00.0");
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetGpuFabricInfo(nvml::Device, nvml::GpuFabricInfo* info) {
  info->cluster_uuid[15] = 0xab;
  info->clique_id = 7;
  info->status = nvml::kSuccess;
  info->state = nvml::kFabricCompleted;
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetMaxMigDeviceCount(nvml::Device device, unsigned* count) {
  *count = device == DeviceAt(1) ? kParts + 1 : 0;
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetMigDeviceHandleByIndex(nvml::Device, unsigned index, nvml::Device* part) {
  if (index >= kParts) return kInvalid;
  *part = &parts[index];
  return nvml::kSuccess;
}

// The second GPU reports only its memory.
nvml::Return nvmlDeviceGetMemoryInfo(nvml::Device, nvml::Memory* memory) {
  *memory = {.total = 8'000'000'000, .free = 5'000'000'000, .used = 3'000'000'000};
  return nvml::kSuccess;
}
nvml::Return nvmlDeviceGetUtilizationRates(nvml::Device device, nvml::Utilization* rates) {
  *rates = {.gpu = 75, .memory = 10};
  return device == DeviceAt(0) ? nvml::kSuccess : kNotSupported;
}
nvml::Return nvmlDeviceGetPowerUsage(nvml::Device device, unsigned* milliwatts) {
  *milliwatts = 250'500;
  return device == DeviceAt(0) ? nvml::kSuccess : kNotSupported;
}
nvml::Return nvmlDeviceGetTemperature(nvml::Device device, int sensor, unsigned* celsius) {
  *celsius = 61;
  return device == DeviceAt(0) && sensor == nvml::kTemperatureOfGpu ? nvml::kSuccess
                                                                    : kNotSupported;
}
nvml::Return nvmlDeviceGetClockInfo(nvml::Device device, int clock, unsigned* megahertz) {
  *megahertz = clock == nvml::kClockOfMultiprocessors ? 1980 : 1;
  return device == DeviceAt(0) ? nvml::kSuccess : kNotSupported;
}

// False if events of this GPU were not requested.
bool MusterTestXid(unsigned gpu, unsigned long long xid) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (!state.registered[gpu]) return false;
  state.events.push_back({DeviceAt(gpu), nvml::kXidCriticalError, xid, 0, 0});
  state.changed.notify_all();
  return true;
}

void MusterTestRecoveryAction(unsigned gpu, unsigned action) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.actions[gpu] = action;
}

// What asking for the GPU answers from now on.
void MusterTestAnswer(unsigned gpu, nvml::Return code) { TheState().answers[gpu] = code; }

}  // extern "C"
