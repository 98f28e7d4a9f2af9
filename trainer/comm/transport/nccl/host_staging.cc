#include "trainer/comm/transport/nccl/host_staging.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace muster {
namespace {

constexpr std::size_t kLeastBytes = 4096;

}  // namespace

Result<std::unique_ptr<HostStaging::Piece>> HostStaging::Piece::Make(
    std::shared_ptr<const CudaApi> cuda, std::size_t bytes) {
  std::unique_ptr<Piece> piece(new Piece(std::move(cuda), bytes));
  const CudaApi& api = *piece->cuda_;
  MUSTER_RETURN_IF_ERROR(CudaStatus(api, api.Malloc(&piece->device_, bytes), "staging"));
  MUSTER_RETURN_IF_ERROR(CudaStatus(api, api.HostMalloc(&piece->host_, bytes), "staging"));
  return piece;
}

HostStaging::Piece::~Piece() {
  if (leaked_) return;
  if (device_ != nullptr) (void)cuda_->Free(device_);
  if (host_ != nullptr) (void)cuda_->HostFree(host_);
}

Result<std::unique_ptr<HostStaging::Piece>> HostStaging::Take(std::size_t bytes) {
  if (kept_ != nullptr && kept_->bytes() >= bytes) return std::move(kept_);
  // In powers of two, so that operations that grow make few.
  const std::size_t rounded = std::bit_ceil(std::max(bytes, kLeastBytes));
  return Piece::Make(cuda_, rounded <= kept_bytes_ ? rounded : bytes);
}

void HostStaging::GiveBack(std::unique_ptr<Piece> piece) {
  if (piece->bytes() > kept_bytes_) return;
  if (kept_ == nullptr || kept_->bytes() < piece->bytes()) kept_ = std::move(piece);
}

}  // namespace muster
