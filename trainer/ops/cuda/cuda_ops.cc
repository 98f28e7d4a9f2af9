#include "trainer/ops/cuda/cuda_ops.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <optional>
#include <utility>

#include "trainer/ops/cuda/cuda_kernels.h"
#include "trainer/ops/cuda/fused_attention.h"
#include "trainer/plugin/plugin.h"

namespace muster {
namespace {

// Owned by a copy; recorded behind it.
class CopyEvent {
 public:
  CopyEvent() { C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~CopyEvent() { (void)cudaEventDestroy(event_); }
  CopyEvent(const CopyEvent&) = delete;
  CopyEvent& operator=(const CopyEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaCopy final : public DeviceCopy {
 public:
  CudaCopy(c10::cuda::CUDAStream copies, void* to, const void* from, std::size_t bytes) {
    const cudaStream_t trainer = c10::cuda::getCurrentCUDAStream(copies.device_index());
    C10_CUDA_CHECK(cudaEventRecord(done_.get(), trainer));
    C10_CUDA_CHECK(cudaStreamWaitEvent(copies.stream(), done_.get(), 0));
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copies.stream()));
    C10_CUDA_CHECK(cudaEventRecord(done_.get(), copies.stream()));
  }
  void WaitOnDevice() override {
    C10_CUDA_CHECK(cudaStreamWaitEvent(c10::cuda::getCurrentCUDAStream(), done_.get(), 0));
  }
  void WaitOnHost() override { C10_CUDA_CHECK(cudaEventSynchronize(done_.get())); }

 private:
  CopyEvent done_;
};

class CudaOps final : public DeviceOps {
 public:
  explicit CudaOps(int device)
      : device_(at::kCUDA, static_cast<c10::DeviceIndex>(device)),
        copies_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device_.index())) {
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties_, device));
    attention_.emplace(device_, SupportsBFloat16(properties_.major) ? at::kBFloat16 : at::kHalf);
  }

  at::Device device() const override { return device_; }
  std::string Describe() const override {
    return std::string(properties_.name) + " (compute capability " +
           std::to_string(properties_.major) + "." + std::to_string(properties_.minor) +
           "), attention: " + attention_->description();
  }
  bool is_host() const override { return false; }

  at::Tensor Allocate(std::size_t bytes) override {
    void* memory = nullptr;
    C10_CUDA_CHECK(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)));
    C10_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, c10::cuda::getCurrentCUDAStream()));
    return at::from_blob(
        memory, {static_cast<std::int64_t>(bytes)}, [](void* m) { (void)cudaFree(m); },
        at::TensorOptions(device_).dtype(at::kByte));
  }

  at::Tensor AllocateHost(std::size_t bytes) override {
    void* memory = nullptr;
    C10_CUDA_CHECK(cudaHostAlloc(&memory, std::max<std::size_t>(bytes, 1), cudaHostAllocDefault));
    std::memset(memory, 0, bytes);
    return at::from_blob(
        memory, {static_cast<std::int64_t>(bytes)}, [](void* m) { (void)cudaFreeHost(m); },
        at::TensorOptions(at::kCPU).dtype(at::kByte));
  }

  std::shared_ptr<void> PinHost(void* memory, std::size_t bytes) override {
    C10_CUDA_CHECK(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
    return {memory, [](void* m) { (void)cudaHostUnregister(m); }};
  }

  std::unique_ptr<DeviceCopy> Copy(void* to, const void* from, std::size_t bytes) override {
    return std::make_unique<CudaCopy>(copies_, to, from, bytes);
  }

  void RunKernel(const AnyOperator& op) override {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_.index());
    kernels_.Run(op, device_, reinterpret_cast<CudaStream>(stream), &*attention_);
  }

 private:
  const at::Device device_;
  const c10::cuda::CUDAStream copies_;
  cudaDeviceProp properties_{};
  std::optional<FusedAttention> attention_;
  CudaKernels kernels_;
};

}  // namespace

std::unique_ptr<DeviceOps> MakeCudaOps(int device) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  return std::make_unique<CudaOps>(device);
}

}  // namespace muster
