// CudaEvents: CUDA events that are used again instead of being made anew for every operation.
//
// Thread-safe. Shared by the takers of events; an event goes back when its handle is dropped.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "trainer/core/cuda_api.h"

namespace muster {

// The status of a CUDA function; `what` names it.
Status CudaStatus(const CudaApi& cuda, CudaResult result, const char* what);

class CudaEvents : public std::enable_shared_from_this<CudaEvents> {
 public:
  class Handle {
   public:
    Handle() = default;
    Handle(std::shared_ptr<CudaEvents> pool, CudaEvent event)
        : pool_(std::move(pool)), event_(event) {}
    Handle(Handle&& other) noexcept = default;
    Handle& operator=(Handle&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(event_, other.event_);
      return *this;
    }
    ~Handle() {
      if (pool_ != nullptr) pool_->Put(event_);
    }
    CudaEvent get() const { return event_; }

   private:
    std::shared_ptr<CudaEvents> pool_;
    CudaEvent event_ = nullptr;
  };

  explicit CudaEvents(std::shared_ptr<const CudaApi> cuda) : cuda_(std::move(cuda)) {}
  ~CudaEvents();
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;

  Result<Handle> Take();

 private:
  void Put(CudaEvent event);

  const std::shared_ptr<const CudaApi> cuda_;
  std::mutex mutex_;
  std::vector<CudaEvent> free_;
};

}  // namespace muster
