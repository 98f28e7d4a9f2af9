#include "worker/health/gpu_figures.h"

#include <dlfcn.h>

#include <array>
#include <utility>

#include "common/telemetry/log.h"
#include "worker/fabric/nvml_abi.h"

namespace muster::worker {
namespace {

// All but the first four may be missing in an old or reduced driver.
struct Api {
  nvml::Init init = nullptr;
  nvml::Shutdown shutdown = nullptr;
  nvml::DeviceCount device_count = nullptr;
  nvml::DeviceByIndex device_by_index = nullptr;
  nvml::DeviceText uuid = nullptr;
  nvml::UtilizationRates utilization = nullptr;
  nvml::MemoryInfo memory = nullptr;
  nvml::PowerUsage power = nullptr;
  nvml::Temperature temperature = nullptr;
  nvml::ClockInfo clock = nullptr;
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
                        Load(library, "nvmlDeviceGetHandleByIndex_v2", &api.device_by_index);
  if (!complete) return Unimplemented("the library lacks functions; a newer driver has them");
  Load(library, "nvmlDeviceGetUUID", &api.uuid);
  Load(library, "nvmlDeviceGetUtilizationRates", &api.utilization);
  Load(library, "nvmlDeviceGetMemoryInfo", &api.memory);
  Load(library, "nvmlDeviceGetPowerUsage", &api.power);
  Load(library, "nvmlDeviceGetTemperature", &api.temperature);
  Load(library, "nvmlDeviceGetClockInfo", &api.clock);
  return api;
}

struct CloseLibrary {
  void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

}  // namespace

class GpuReader::Impl {
 public:
  Impl(Library library, const Api& api) : library_(std::move(library)), api_(api) {}
  ~Impl() {
    if (initialised_) api_.shutdown();
  }

  Status Start() {
    if (const nvml::Return code = api_.init(); code != nvml::kSuccess)
      return Unavailable("the GPU management library cannot start: error " + std::to_string(code));
    initialised_ = true;
    return OkStatus();
  }

  std::vector<GpuFigures> Read() const {
    std::vector<GpuFigures> all;
    unsigned count = 0;
    if (api_.device_count(&count) != nvml::kSuccess) return all;
    for (unsigned index = 0; index < count; ++index) {
      nvml::Device device = nullptr;
      if (api_.device_by_index(index, &device) != nvml::kSuccess) continue;
      all.push_back(ReadOne(static_cast<int>(index), device));
    }
    return all;
  }

 private:
  GpuFigures ReadOne(int index, nvml::Device device) const {
    GpuFigures gpu{.index = index};
    std::array<char, 96> uuid = {};
    if (api_.uuid != nullptr && api_.uuid(device, uuid.data(), uuid.size()) == nvml::kSuccess)
      gpu.uuid = uuid.data();
    if (nvml::Utilization rates{};
        api_.utilization != nullptr && api_.utilization(device, &rates) == nvml::kSuccess)
      gpu.utilization = rates.gpu / 100.0;
    if (nvml::Memory memory{};
        api_.memory != nullptr && api_.memory(device, &memory) == nvml::kSuccess) {
      gpu.memory_bytes = static_cast<double>(memory.total);
      gpu.memory_used_bytes = static_cast<double>(memory.used);
    }
    if (unsigned milliwatts = 0;
        api_.power != nullptr && api_.power(device, &milliwatts) == nvml::kSuccess)
      gpu.power_watts = milliwatts / 1000.0;
    if (unsigned celsius = 0;
        api_.temperature != nullptr &&
        api_.temperature(device, nvml::kTemperatureOfGpu, &celsius) == nvml::kSuccess)
      gpu.temperature_celsius = celsius;
    if (unsigned megahertz = 0;
        api_.clock != nullptr &&
        api_.clock(device, nvml::kClockOfMultiprocessors, &megahertz) == nvml::kSuccess)
      gpu.sm_clock_hertz = megahertz * 1e6;
    return gpu;
  }

  const Library library_;
  const Api api_;
  bool initialised_ = false;
};

Result<std::unique_ptr<GpuReader>> GpuReader::Open(const std::string& library) {
  Library handle(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!handle) return NotFound(std::string("no GPU management library: ") + ::dlerror());
  MUSTER_ASSIGN_OR_RETURN(const Api api, LoadApi(handle.get()));
  auto impl = std::make_unique<Impl>(std::move(handle), api);
  MUSTER_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<GpuReader>(new GpuReader(std::move(impl)));
}

GpuReader::GpuReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GpuReader::~GpuReader() = default;

std::vector<GpuFigures> GpuReader::Read() { return impl_->Read(); }

GpuMonitor::GpuMonitor(EventLoop& loop, std::string library, Duration interval)
    : loop_(loop),
      library_(std::move(library)),
      interval_(interval),
      timer_(loop),
      pool_("gpu-figures", 1, 1) {}

void GpuMonitor::Start() {
  if (library_.empty()) return;
  auto reader = GpuReader::Open(library_);
  if (!reader.ok()) {
    if (reader.status().code() != StatusCode::kNotFound)
      Log().warn("no metrics of GPUs: {}", reader.status().message());
    return;
  }
  reader_ = *std::move(reader);
  ReadAgain();
}

// One reading at a time: no other one queues behind one that hangs.
void GpuMonitor::ReadAgain() {
  const bool taken = pool_.TrySubmit([this, reader = reader_] {
    loop_.Post([this, read = reader->Read()]() mutable {
      newest_ = std::move(read);
      timer_.Start(interval_, [this] { ReadAgain(); });
    });
  });
  if (!taken) timer_.Start(interval_, [this] { ReadAgain(); });
}

}  // namespace muster::worker
