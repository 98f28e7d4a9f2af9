#include "trainer/comm/transport/nccl/cuda_events.h"

#include <string>

namespace muster {

Status CudaStatus(const CudaApi& cuda, CudaResult result, const char* what) {
  if (result == CudaResult::kSuccess) return OkStatus();
  const char* const text = cuda.GetErrorString(result);
  return Internal(std::string("CUDA: ") + what + ": " +
                  (text == nullptr ? std::to_string(static_cast<int>(result)) : text));
}

CudaEvents::~CudaEvents() {
  for (const CudaEvent event : free_) (void)cuda_->EventDestroy(event);
}

Result<CudaEvents::Handle> CudaEvents::Take() {
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const CudaEvent event = free_.back();
      free_.pop_back();
      return Handle(shared_from_this(), event);
    }
  }
  CudaEvent event = nullptr;
  MUSTER_RETURN_IF_ERROR(CudaStatus(*cuda_, cuda_->EventCreate(&event), "a new event"));
  return Handle(shared_from_this(), event);
}

void CudaEvents::Put(CudaEvent event) {
  std::lock_guard lock(mutex_);
  free_.push_back(event);
}

}  // namespace muster
