#include "trainer/ops/cpu/cpu_ops.h"

#include <cstring>

#include "trainer/ops/cpu/cpu_features.h"
#include "trainer/ops/cpu/cpu_memory.h"

namespace muster {

// kernel.h
template <typename Op>
void CpuKernel(const void* arguments);

namespace {

template <typename... Ops>
void RunNumber(OperatorList<Ops...>, std::size_t number, const void* arguments) {
  static constexpr void (*kKernels[])(const void*) = {CpuKernel<Ops>...};
  kKernels[number](arguments);
}

class DoneCopy final : public DeviceCopy {
 public:
  void WaitOnDevice() override {}
  void WaitOnHost() override {}
};

class CpuOps final : public DeviceOps {
 public:
  at::Device device() const override { return at::kCPU; }
  std::string Describe() const override {
    const CpuFeatures& cpu = ThisCpu();
    if (cpu.amx_bf16) return "AMX, AVX-512";
    if (cpu.avx512) return "AVX-512";
    if (cpu.avx2) return "AVX2";
    return "portable";
  }
  at::Tensor Allocate(std::size_t bytes) override { return MapZeroed(bytes); }
  at::Tensor AllocateHost(std::size_t bytes) override { return MapZeroed(bytes); }
  std::shared_ptr<void> PinHost(void*, std::size_t) override { return nullptr; }
  bool is_host() const override { return true; }
  std::unique_ptr<DeviceCopy> Copy(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
    return std::make_unique<DoneCopy>();
  }
  void RunKernel(const AnyOperator& op) override {
    RunNumber(op::Operators(), op.number(), op.arguments());
  }
};

}  // namespace

std::unique_ptr<DeviceOps> MakeCpuOps() { return std::make_unique<CpuOps>(); }

}  // namespace muster
