// The final norm, the head and the cross entropy, forward and backward in one call, over chunks of
// the labelled positions: no [tokens, vocabulary] array exists for more than one chunk, and logits
// become their own gradient in place. The head's gradient in 16 bits is rounded once: that of
// several chunks adds up in fp32. Also forward alone: how well given labels are predicted, and what
// is predicted.
//
// Memory grows to the largest batch and stays; its size depends on the batch's shape alone, not on
// how many positions have a label. Owned by the engine; the trainer's thread. Shape and type errors
// are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "trainer/model/arena.h"
#include "trainer/model/linear.h"
#include "trainer/model/residual_stream.h"
#include "trainer/ops/device_ops.h"

namespace muster {

struct HeadTask {
  ResidualStream hidden;  // [N, H], what the last block left
  at::Tensor norm;        // [H]
  at::Tensor head;        // [V, H]
  // Positions with a label, ascending, and their labels, equally long: int64 on the device. A
  // negative label counts nothing.
  at::Tensor positions;
  at::Tensor labels;
  double eps = 0;
  bool zero_centered = false;  // the norm's weight
  double logits_scaling = 1;   // logits are divided by it
  double cap = 0;              // a logit x counts as cap * tanh(x / cap) then; 0: as x
  double scale = 1;  // on every gradient; one over the labels of the window, times the loss scale
  // A target without a tensor: that weight is frozen.
  GradientTarget norm_gradient;
  GradientTarget head_gradient;  // with a tied head the embedding's
};

class LlamaHead {
 public:
  // What a chunk of logits may take: as much as keeps the products efficient.
  static std::int64_t DefaultChunkBytes(at::Device device);

  // `ops` outlives the object.
  LlamaHead(DeviceOps& ops, at::ScalarType compute_type, std::int64_t chunk_bytes);
  LlamaHead(DeviceOps& ops, at::ScalarType compute_type)
      : LlamaHead(ops, compute_type, DefaultChunkBytes(ops.device())) {}

  // loss[0] (fp64 on the device) += sum of the cross entropies, unscaled. Returns the gradient of
  // the stream [N, H], zero where there is no label; valid until the next call. Without a label
  // the targets become zero, or stay as they are where they are added to.
  at::Tensor Run(const HeadTask& task, at::Tensor& loss);

  // Forward alone; scale and targets of the task do not count. loss as in Run; correct[0] (fp64 on
  // the device) += labels than which no word is more likely.
  void Measure(const HeadTask& task, at::Tensor& loss, at::Tensor& correct);
  // The most likely of the first `words` words at each position of the task, of equal ones any:
  // [positions] int64 on the device. Labels do not count, but there are as many.
  at::Tensor Choose(const HeadTask& task, std::int64_t words);

  std::int64_t bytes() const { return arena_.bytes() + weight_gradient_.bytes(); }
  struct Shape {
    std::int64_t tokens = 0, hidden = 0, vocabulary = 0;
    bool trains_head = false;  // its gradient is wanted
  };
  // What a batch takes, without taking it.
  std::int64_t BytesFor(const Shape& shape) const;

 private:
  // Their shapes follow from the batch and the vocabulary.
  struct Buffers {
    at::Tensor sum;              // [N, H] of the labelled rows, as the next two
    at::Tensor normed;           // [N, H]
    at::Tensor normed_gradient;  // [N, H]
    at::Tensor gradient;         // [N, H] of all rows
    at::Tensor scale;            // [N] W
    at::Tensor labels;           // [N]
    at::Tensor logits;           // [chunk, V]
    at::Tensor head_gradient;    // [V, H] fp32, of all chunks; undefined: they need no other type
  };
  // The labelled rows, first in their buffers.
  struct Rows {
    at::Tensor sum, normed, normed_gradient, scale, labels;
  };

  Buffers Cut(BumpAllocator& allocator, const Shape& shape) const;
  void Fit(const HeadTask& task);
  std::int64_t ChunkRows(std::int64_t rows, std::int64_t vocabulary) const;
  Rows Gather(const HeadTask& task);
  // Makes the logits [size, V] of the rows from `begin` on, chunk by chunk.
  using UseLogits = std::function<void(std::int64_t begin, std::int64_t size, at::Tensor& logits)>;
  void OverLogits(const HeadTask& task, const Rows& rows, const UseLogits& use);
  void LossAndProducts(const HeadTask& task, Rows& rows, at::Tensor& loss);
  void NormBackward(const HeadTask& task, Rows& rows);

  DeviceOps& ops_;
  const at::ScalarType type_;
  const std::int64_t chunk_bytes_;
  Arena arena_;
  Buffers buffers_;
  LinearWeightGradient weight_gradient_;
};

}  // namespace muster
