#include "worker/health/nvml_watch.h"

#include <dlfcn.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "worker/fabric/nvml_abi.h"

namespace muster::worker {
namespace {

constexpr unsigned kWaitMilliseconds = 200;
constexpr std::chrono::seconds kActionInterval{5};
// After an error of the wait, which would otherwise return at once, again and again.
constexpr std::chrono::seconds kErrorPause{1};

struct Api {
  nvml::Init init = nullptr;
  nvml::Shutdown shutdown = nullptr;
  nvml::DeviceCount device_count = nullptr;
  nvml::DeviceByIndex device_by_index = nullptr;
  nvml::EventSetCreate event_set_create = nullptr;
  nvml::EventSetFree event_set_free = nullptr;
  nvml::EventSetWait event_set_wait = nullptr;
  nvml::RegisterEvents register_events = nullptr;
  nvml::FieldValues field_values = nullptr;  // may be missing in old drivers
};

template <typename Function>
bool Load(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

Result<Api> LoadApi(void* library) {
  Api api;
  const bool complete = Load(library, "nvmlInit_v2", &api.init) &&
                        Load(library, "nvmlShutdown", &api.shutdown) &&
                        Load(library, "nvmlDeviceGetCount_v2", &api.device_count) &&
                        Load(library, "nvmlDeviceGetHandleByIndex_v2", &api.device_by_index) &&
                        Load(library, "nvmlEventSetCreate", &api.event_set_create) &&
                        Load(library, "nvmlEventSetFree", &api.event_set_free) &&
                        Load(library, "nvmlEventSetWait_v2", &api.event_set_wait) &&
                        Load(library, "nvmlDeviceRegisterEvents", &api.register_events);
  if (!complete) return Unimplemented("the library lacks functions; a newer driver has them");
  Load(library, "nvmlDeviceGetFieldValues", &api.field_values);
  return api;
}

struct CloseLibrary {
  void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

}  // namespace

class NvmlWatch::Impl {
 public:
  Impl(Library library, const Api& api, std::function<void(const NvmlEvent&)> tell)
      : library_(std::move(library)), api_(api), tell_(std::move(tell)) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    if (set_ != nullptr) api_.event_set_free(set_);
    if (initialised_) api_.shutdown();
  }

  Status Start() {
    if (const nvml::Return code = api_.init(); code != nvml::kSuccess) return Failed("start", code);
    initialised_ = true;
    unsigned count = 0;
    if (const nvml::Return code = api_.device_count(&count); code != nvml::kSuccess)
      return Failed("count GPUs", code);
    if (const nvml::Return code = api_.event_set_create(&set_); code != nvml::kSuccess)
      return Failed("make a set of events", code);
    for (unsigned index = 0; index < count; ++index) {
      nvml::Device device = nullptr;
      // A GPU that cannot be queried, or reports no events, is watched only in the kernel's log.
      if (api_.device_by_index(index, &device) != nvml::kSuccess) device = nullptr;
      devices_.push_back(device);
      if (device != nullptr) (void)api_.register_events(device, nvml::kXidCriticalError, set_);
    }
    actions_.assign(devices_.size(), 0);
    thread_ = std::thread([this] { Run(); });
    return OkStatus();
  }

  int gpus() const { return static_cast<int>(devices_.size()); }

 private:
  static Status Failed(const std::string& what, nvml::Return code) {
    return Unavailable("the GPU management library cannot " + what + ": error " +
                       std::to_string(code));
  }

  void Run() {
    TimePoint next_actions = SystemClock().Now();
    while (!Stopping()) {
      if (SystemClock().Now() >= next_actions) {
        ReadActions();
        next_actions = SystemClock().Now() + kActionInterval;
      }
      nvml::EventData data{};
      const nvml::Return code = api_.event_set_wait(set_, &data, kWaitMilliseconds);
      if (code == nvml::kSuccess) {
        Tell(data);
        // The driver's requested action follows from the error.
        next_actions = SystemClock().Now();
      } else if (code != nvml::kTimeout) {
        Pause();
      }
    }
  }

  void Tell(const nvml::EventData& data) {
    const auto device = std::find(devices_.begin(), devices_.end(), data.device);
    if ((data.type & nvml::kXidCriticalError) == 0 || device == devices_.end()) return;
    tell_({.gpu = static_cast<int>(device - devices_.begin()),
           .kind = NvmlEvent::Kind::kXid,
           .value = static_cast<int>(data.data)});
  }

  void ReadActions() {
    if (api_.field_values == nullptr) return;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      nvml::FieldValue field{.field = nvml::kRecoveryActionField};
      if (devices_[i] == nullptr || api_.field_values(devices_[i], 1, &field) != nvml::kSuccess ||
          field.status != nvml::kSuccess)
        continue;
      const int action = static_cast<int>(field.value.as_unsigned);
      if (std::exchange(actions_[i], action) == action) continue;
      tell_(
          {.gpu = static_cast<int>(i), .kind = NvmlEvent::Kind::kRecoveryAction, .value = action});
    }
  }

  bool Stopping() {
    const std::lock_guard lock(mutex_);
    return stopping_;
  }
  void Pause() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kErrorPause, [this] { return stopping_; });
  }

  const Library library_;
  const Api api_;
  const std::function<void(const NvmlEvent&)> tell_;
  bool initialised_ = false;
  nvml::EventSet set_ = nullptr;
  std::vector<nvml::Device> devices_;  // by index; null: it cannot be queried
  std::vector<int> actions_;           // last reported, by index
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

Result<std::unique_ptr<NvmlWatch>> NvmlWatch::Start(const std::string& library,
                                                    std::function<void(const NvmlEvent&)> tell) {
  Library handle(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!handle) return NotFound(std::string("no GPU management library: ") + ::dlerror());
  MUSTER_ASSIGN_OR_RETURN(const Api api, LoadApi(handle.get()));
  auto impl = std::make_unique<Impl>(std::move(handle), api, std::move(tell));
  MUSTER_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<NvmlWatch>(new NvmlWatch(std::move(impl)));
}

NvmlWatch::NvmlWatch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NvmlWatch::~NvmlWatch() = default;

int NvmlWatch::gpus() const { return impl_->gpus(); }

}  // namespace muster::worker
