#include "trainer/plugin/plugin.h"

#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <string>

#include "trainer/comm/transport/nccl/nccl_rendezvous.h"
#include "trainer/ops/cuda/convert_rows.h"
#include "trainer/ops/cuda/cuda_ops.h"

namespace muster {
namespace {

cudaStream_t Native(CudaStream stream) { return reinterpret_cast<cudaStream_t>(stream); }
cudaEvent_t Native(CudaEvent event) { return reinterpret_cast<cudaEvent_t>(event); }
CudaResult Ours(cudaError_t error) { return static_cast<CudaResult>(error); }

std::shared_ptr<const CudaApi> MakeCudaApi() {
  auto api = std::make_shared<CudaApi>();
  api->SetDevice = [](int device) { return Ours(cudaSetDevice(device)); };
  api->StreamCreate = [](CudaStream* stream) {
    int least = 0, greatest = 0;
    const cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error != cudaSuccess) return Ours(error);
    return Ours(cudaStreamCreateWithPriority(reinterpret_cast<cudaStream_t*>(stream),
                                             cudaStreamNonBlocking, greatest));
  };
  api->StreamDestroy = [](CudaStream stream) { return Ours(cudaStreamDestroy(Native(stream))); };
  api->StreamWaitEvent = [](CudaStream stream, CudaEvent event) {
    return Ours(cudaStreamWaitEvent(Native(stream), Native(event), 0));
  };
  api->EventCreate = [](CudaEvent* event) {
    return Ours(
        cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), cudaEventDisableTiming));
  };
  api->EventDestroy = [](CudaEvent event) { return Ours(cudaEventDestroy(Native(event))); };
  api->EventRecord = [](CudaEvent event, CudaStream stream) {
    return Ours(cudaEventRecord(Native(event), Native(stream)));
  };
  api->EventQuery = [](CudaEvent event) {
    const cudaError_t error = cudaEventQuery(Native(event));
    // "Not ready" would stay the thread's last error, which the next launch would find.
    if (error == cudaErrorNotReady) (void)cudaGetLastError();
    return Ours(error);
  };
  api->Malloc = [](void** memory, std::size_t bytes) { return Ours(cudaMalloc(memory, bytes)); };
  api->Free = [](void* memory) { return Ours(cudaFree(memory)); };
  api->HostMalloc = [](void** memory, std::size_t bytes) {
    return Ours(cudaHostAlloc(memory, bytes, cudaHostAllocDefault));
  };
  api->HostFree = [](void* memory) { return Ours(cudaFreeHost(memory)); };
  api->IsHostMemory = [](const void* memory) {
    cudaPointerAttributes attributes{};
    const bool known = cudaPointerGetAttributes(&attributes, memory) == cudaSuccess;
    return known && attributes.type == cudaMemoryTypeUnregistered;
  };
  api->Copy = [](void* to, const void* from, std::size_t bytes, CudaStream stream) {
    return Ours(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, Native(stream)));
  };
  api->Convert = cuda::ConvertOnStream;
  api->CurrentStream = [] {
    return reinterpret_cast<CudaStream>(c10::cuda::getCurrentCUDAStream().stream());
  };
  api->GetErrorString = [](CudaResult result) {
    return cudaGetErrorString(static_cast<cudaError_t>(result));
  };
  return api;
}

static_assert(static_cast<int>(CudaResult::kNotReady) == static_cast<int>(cudaErrorNotReady));
static_assert(sizeof(cudaEvent_t) == sizeof(CudaEvent) &&
              sizeof(cudaError_t) == sizeof(CudaResult));

// 13000 -> "13.0".
std::string CudaVersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

CudaVersions Versions() {
  CudaVersions versions;
  versions.plugin = MUSTER_PLUGIN_BUILD;
  int number = 0;
  if (cudaRuntimeGetVersion(&number) == cudaSuccess) versions.runtime = CudaVersionText(number);
  number = 0;
  if (cudaDriverGetVersion(&number) == cudaSuccess && number > 0) {
    versions.driver = CudaVersionText(number);
  }
  const Result<NcclApi> nccl = LoadNccl("libnccl.so.2");
  if (nccl.ok() && nccl->GetVersion(&number) == NcclResult::kSuccess) {
    versions.nccl = NcclVersionText(number);
  }
  return versions;
}

Result<int> DeviceCount() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();
  const CudaVersions versions = Versions();
  if (versions.driver.empty()) {
    return FailedPrecondition("no GPU can be used: NVIDIA's driver is not installed or not loaded");
  }
  if (error == cudaErrorInsufficientDriver) {
    return FailedPrecondition("no GPU can be used: the driver supports CUDA " + versions.driver +
                              ", Muster was built with CUDA " + versions.runtime +
                              "; a newer driver is needed");
  }
  if (error == cudaErrorNoDevice || error == cudaSuccess) {
    return FailedPrecondition("no GPU is visible; CUDA_VISIBLE_DEVICES may hide it");
  }
  return FailedPrecondition(std::string("no GPU can be used: ") + cudaGetErrorString(error));
}

Status CheckDevice(int device) {
  MUSTER_ASSIGN_OR_RETURN(const int count, DeviceCount());
  if (device >= 0 && device < count) return OkStatus();
  return FailedPrecondition("there is no GPU " + std::to_string(device) + ", only " +
                            std::to_string(count));
}

Result<CudaDevice> Device(int device) {
  MUSTER_RETURN_IF_ERROR(CheckDevice(device));
  cudaDeviceProp properties{};
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return FailedPrecondition(cudaGetErrorString(error));
  return CudaDevice{properties.name, properties.major, properties.minor,
                    static_cast<std::int64_t>(properties.totalGlobalMem)};
}

Result<std::unique_ptr<DeviceOps>> MakeOps(int device) {
  MUSTER_RETURN_IF_ERROR(CheckDevice(device));
  try {
    return MakeCudaOps(device);
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return FailedPrecondition("GPU " + std::to_string(device) +
                              " cannot be used: " + text.substr(0, text.find('\n')));
  }
}

Result<std::shared_ptr<RendezvousStore>> MakeRendezvous(int device, Duration operation_timeout) {
  auto tables = std::make_shared<NcclTables>();
  MUSTER_ASSIGN_OR_RETURN(tables->nccl, LoadNccl("libnccl.so.2"));
  tables->cuda = MakeCudaApi();
  tables->device = device;
  tables->limit = std::make_shared<OperationLimit>(operation_timeout);
  return MakeNcclRendezvous(std::move(tables));
}

constexpr CudaPlugin kPlugin = {
    .build = MUSTER_PLUGIN_BUILD,
    .versions = Versions,
    .device_count = DeviceCount,
    .device = Device,
    .make_ops = MakeOps,
    .make_rendezvous = MakeRendezvous,
};

}  // namespace
}  // namespace muster

extern "C" __attribute__((visibility("default"))) const muster::CudaPlugin*
muster_cuda_plugin_v1() {
  return &muster::kPlugin;
}
