#include "tests/parity/apart_device.h"

#include <ATen/ATen.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "trainer/model/testing/late_copies_testing.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace muster::parity {
namespace {

const at::Device kApart(at::kPrivateUse1, 0);

thread_local std::vector<std::string>* waits = nullptr;  // where waits of the host are noted

// Their results are as long as values say.
const std::set<std::string> kReadValues = {"aten::nonzero", "aten::masked_select",
                                           "aten::_unique2"};

void NoteWait(const std::string& what) {
  if (waits != nullptr) waits->push_back(what);
}

bool IsApart(const at::Tensor& tensor) { return tensor.defined() && tensor.device() == kApart; }

// The same memory as a tensor of the host, or of the device.
at::Tensor View(const at::Tensor& tensor, at::Device device) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .deleter([tensor](void*) {})
      .options(tensor.options().device(device))
      .target_device(device)
      .make_tensor();
}
at::Tensor OnHost(const at::Tensor& tensor) {
  return IsApart(tensor) ? View(tensor, at::kCPU) : tensor;
}

// Memory of the host that counts as the device's, or as pinned.
class Memory final : public c10::Allocator {
 public:
  explicit Memory(at::Device device) : device_(device) {}
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = c10::GetDefaultCPUAllocator()->raw_allocate(bytes);
    const std::lock_guard lock(mutex_);
    pieces_[data] = bytes;
    return {data, data, &Free, device_};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool Has(const void* place) const {
    const std::lock_guard lock(mutex_);
    const auto after = pieces_.upper_bound(place);
    if (after == pieces_.begin()) return false;
    const auto& [begin, bytes] = *std::prev(after);
    return place < static_cast<const char*>(begin) + bytes;
  }

 private:
  static void Free(void* data);
  void Forget(const void* data) {
    const std::lock_guard lock(mutex_);
    pieces_.erase(data);
  }

  const at::Device device_;
  mutable std::mutex mutex_;
  std::map<const void*, std::size_t> pieces_;
};

Memory& OfDevice() {
  static Memory* const memory = new Memory(kApart);
  return *memory;
}
Memory& Pinned() {
  static Memory* const memory = new Memory(at::kCPU);
  return *memory;
}

void Memory::Free(void* data) {
  OfDevice().Forget(data);
  Pinned().Forget(data);
  c10::GetDefaultCPUAllocator()->raw_deallocate(data);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  at::Device getDeviceFromPtr(void*) const override { return kApart; }
  bool isPinnedPtr(const void* data) const override { return Pinned().Has(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &Pinned(); }
};

at::Tensor Empty(at::IntArrayRef sizes, at::ScalarType type) {
  std::int64_t bytes = at::elementSize(type);
  for (const std::int64_t size : sizes) bytes *= size;
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       OfDevice().allocate(static_cast<std::size_t>(bytes)), &OfDevice(), true);
  at::Tensor tensor = at::detail::make_tensor<at::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}
at::Tensor EmptyOf(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                   std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                   std::optional<at::MemoryFormat>) {
  return Empty(sizes, type.value_or(at::kFloat));
}
at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides,
                        std::optional<at::ScalarType> type, std::optional<at::Layout>,
                        std::optional<at::Device>, std::optional<bool>) {
  std::int64_t last = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * strides[i];
  at::Tensor tensor = Empty({std::max<std::int64_t>(last, 0)}, type.value_or(at::kFloat));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}
at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (IsApart(from) != IsApart(to)) {
    const bool pinned = Pinned().Has((IsApart(from) ? to : from).data_ptr());
    if (!non_blocking || !pinned)
      NoteWait(std::string(non_blocking ? "pageable" : "blocking") + " copy " +
               (IsApart(from) ? "to the host" : "to the device"));
  }
  OnHost(to).copy_(OnHost(from));
  return to;
}

// Any other operator: the CPU's, over the same memory.
void RunOnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  std::vector<std::pair<at::Tensor, at::Tensor>> views;  // of the host, and what they are of
  const auto view = [&](const at::Tensor& tensor) {
    views.emplace_back(OnHost(tensor), tensor);
    return views.back().first;
  };
  for (auto value = stack->end() - static_cast<std::ptrdiff_t>(count); value != stack->end();
       ++value) {
    if (value->isTensor()) {
      *value = view(value->toTensor());
    } else if (value->isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& each : value->toTensorVector()) tensors.push_back(view(each));
      *value = tensors;
    } else if (value->isDevice() && value->toDevice() == kApart) {
      *value = at::Device(at::kCPU);
    }
  }
  op.callBoxed(stack);
  const std::size_t results = op.schema().returns().size();
  for (auto value = stack->end() - static_cast<std::ptrdiff_t>(results); value != stack->end();
       ++value) {
    if (!value->isTensor() || kReadValues.contains(op.schema().name()))
      NoteWait(op.schema().name());
    if (!value->isTensor() || !value->toTensor().defined()) continue;
    const at::Tensor result = value->toTensor();
    *value = View(result, kApart);
    for (const auto& [host, original] : views) {
      if (host.is_same(result)) *value = original;
    }
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&RunOnHost>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &EmptyOf);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("resize_", &at::native::resize_);
  library.impl("_copy_from", &CopyFrom);
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1>);

class ApartOps final : public LateCopies {
 public:
  explicit ApartOps(std::unique_ptr<DeviceOps> cpu) : LateCopies(*cpu), cpu_(std::move(cpu)) {
    static const bool registered = [] {
      c10::register_privateuse1_backend("apart");
      at::RegisterPrivateUse1HooksInterface(new Hooks);
      return true;
    }();
    (void)registered;
  }
  at::Device device() const override { return kApart; }
  at::Tensor Allocate(std::size_t bytes) override {
    return View(LateCopies::Allocate(bytes), kApart);
  }

 private:
  const std::unique_ptr<DeviceOps> cpu_;
};

}  // namespace

std::unique_ptr<DeviceOps> MakeApartOps() { return std::make_unique<ApartOps>(MakeCpuOps()); }

WaitsOfHost::WaitsOfHost() { waits = &seen_; }

WaitsOfHost::~WaitsOfHost() { waits = nullptr; }

std::vector<std::string> WaitsOfHost::Take() { return std::exchange(seen_, {}); }

}  // namespace muster::parity
