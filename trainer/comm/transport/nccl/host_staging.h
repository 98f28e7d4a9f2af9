// HostStaging: device and pinned memory through which collectives over ordinary memory of the host
// go.
//
// Making such memory waits for the device, so the largest piece that was given back is kept for the
// next operation, up to a limit. The trainer's thread; owned by a gang, whose operations have ended
// when it goes.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "common/base/result.h"
#include "trainer/comm/transport/nccl/cuda_events.h"

namespace muster {

class HostStaging {
 public:
  // The same number of bytes of each kind.
  class Piece {
   public:
    static Result<std::unique_ptr<Piece>> Make(std::shared_ptr<const CudaApi> cuda,
                                               std::size_t bytes);
    ~Piece();
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;

    std::byte* device() const { return static_cast<std::byte*>(device_); }
    std::byte* host() const { return static_cast<std::byte*>(host_); }
    std::size_t bytes() const { return bytes_; }
    // An operation that was ended may still use it.
    void Leak() { leaked_ = true; }

   private:
    Piece(std::shared_ptr<const CudaApi> cuda, std::size_t bytes)
        : cuda_(std::move(cuda)), bytes_(bytes) {}

    const std::shared_ptr<const CudaApi> cuda_;
    const std::size_t bytes_;
    void* device_ = nullptr;
    void* host_ = nullptr;
    bool leaked_ = false;
  };

  HostStaging(std::shared_ptr<const CudaApi> cuda, std::size_t kept_bytes)
      : cuda_(std::move(cuda)), kept_bytes_(kept_bytes) {}

  // A piece of at least `bytes`.
  Result<std::unique_ptr<Piece>> Take(std::size_t bytes);
  void GiveBack(std::unique_ptr<Piece> piece);

 private:
  const std::shared_ptr<const CudaApi> cuda_;
  const std::size_t kept_bytes_;
  std::unique_ptr<Piece> kept_;  // null: there is none, or it is in use
};

}  // namespace muster
