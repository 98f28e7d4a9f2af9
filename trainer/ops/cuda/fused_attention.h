// FusedAttention: LibTorch's attention kernels for GPUs, tried out before they are trusted.
//
// cuDNN's is the fastest on new GPUs, flash attention runs on all since compute capability 8.0.
// Each is tried once on a small problem and compared with plain attention, since another cuDNN on
// the library path may lack it or be wrong. Causality is a flag of the kernels, never a mask: with
// masks cuDNN 9's backward has given NaN. Documents and windows only flash attention takes, as
// cumulative lengths and as a flag; it counts as a kernel of its own, tried out on its own. Where
// results must repeat bit for bit (LibTorch's deterministic algorithms), flash attention's
// deterministic backward is the only one that does.
//
// For bf16 and fp16; anything else is plain attention. The trainer's thread; errors are Torch
// exceptions.
#pragma once

#include <string>
#include <vector>

#include "trainer/ops/batch_shape.h"
#include "trainer/ops/cuda/device_documents.h"

namespace muster {

enum class AttentionBackend { kCudnn, kFlash, kPackedFlash };

// In the order in which they are tried.
std::vector<AttentionBackend> AttentionCandidates(bool deterministic);
// Documents, windows, head widths and types that the backend takes; none takes capped scores.
bool AttentionFits(AttentionBackend backend, at::ScalarType type, const BatchShape& shape,
                   const AttentionHeads& heads);

class FusedAttention {
 public:
  // Tries the candidates on `device`, in `type`.
  FusedAttention(at::Device device, at::ScalarType type);

  // False: nothing was done, use plain attention.
  bool Forward(const at::Tensor& qkv, const BatchShape& shape, const AttentionHeads& heads,
               at::Tensor& out, at::Tensor& lse) const;
  bool Backward(const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& lse,
                const at::Tensor& out_gradient, const BatchShape& shape,
                const AttentionHeads& heads, at::Tensor& qkv_gradient) const;

  // "cuDNN", or "flash (cuDNN: why not)".
  const std::string& description() const { return description_; }

 private:
  const AttentionBackend* Choose(at::ScalarType type, const BatchShape& shape,
                                 const AttentionHeads& heads) const;

  std::vector<AttentionBackend> usable_;
  mutable DeviceDocuments documents_;  // only remembers what it was asked last
  std::string description_;
};

}  // namespace muster
