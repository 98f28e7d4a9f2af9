// DeviceOps: the fused operations of a training step on one kind of device.
//
// The engine and the model are written once; what differs between a CPU and a GPU is behind this
// interface: element-wise passes, attention, cross entropy and optimizer as kernels of ours.
// Matrix products are ATen's on both. CpuOps calls trainer/ops/cpu; the CUDA plug-in brings its
// own.
//
// Tensors are contiguous unless said otherwise, of the step's compute type ("T": fp32, fp64, bf16
// or fp16) or of its wide type ("W": fp64 for fp64, else fp32). Arithmetic is in W, and results are
// rounded to T once. Letters: N tokens (rows times length), H hidden size, V vocabulary.
//
// Called by the trainer's thread. On a GPU every call returns before the work is done; it is
// ordered by the current stream. Shape and type errors are Torch exceptions. Bits do not depend on
// the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/core/element_type.h"
#include "trainer/ops/cpu/adamw.h"
#include "trainer/ops/cpu/dropout.h"
#include "trainer/ops/cpu/nf4.h"

namespace muster {

struct AttentionHeads {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  // A token sees the `window` newest tokens of its document up to itself (key j is seen by query i
  // when i - window < j <= i, as Hugging Face's sliding_window has it); 0: all of them.
  std::int64_t window = 0;

  std::int64_t joined_width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// Rows of a batch: N = rows * length.
struct BatchShape {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  // The first tokens of the documents that lie packed in the rows, ascending from 0. They cover all
  // N tokens, and none crosses a row's end, so every row's first token is among them. Attention and
  // positions begin anew with each. Empty: each row is one document.
  std::vector<std::int64_t> document_begins;

  std::int64_t tokens() const { return rows * length; }
  bool operator==(const BatchShape&) const = default;
};

// A gradient that is written, or added to what is there. That of a norm's weight may be undefined:
// the weight is frozen, and nothing is computed for it.
struct GradientTarget {
  at::Tensor tensor;
  bool add = false;
};

// A copy between device and host memory under way. The memory stays until one of the waits.
class DeviceCopy {
 public:
  virtual ~DeviceCopy() = default;
  // Work that is put on the stream from here on begins after the copy.
  virtual void WaitOnDevice() = 0;
  // Returns when the copy is done.
  virtual void WaitOnHost() = 0;
};

class DeviceOps {
 public:
  virtual ~DeviceOps() = default;

  virtual at::Device device() const = 0;
  // For the log: instruction set or GPU, attention backend.
  virtual std::string Describe() const = 0;
  // Zeroed memory for the whole run, as bytes: a uint8 tensor aligned to pages.
  virtual at::Tensor Allocate(std::size_t bytes) = 0;
  // The same in host memory that the device can copy from and to while it computes.
  virtual at::Tensor AllocateHost(std::size_t bytes) = 0;
  // Makes host memory of the caller such memory, until the result goes. Null where it need not be.
  virtual std::shared_ptr<void> PinHost(void* memory, std::size_t bytes) = 0;
  // Whether Allocate's memory is the host's as well: then there is nothing to offload.
  virtual bool is_host() const = 0;
  // Between device memory and AllocateHost's or pinned one, or within either. Begins after all work
  // that was put on the stream before; copies end in the order they began. Any other host memory
  // will do where WaitOnHost follows at once.
  virtual std::unique_ptr<DeviceCopy> Copy(void* to, const void* from, std::size_t bytes) = 0;

  // sum = x + delta (x where delta is undefined; `sum` may be x), y = sum / rms(sum) * weight,
  // scale = 1 / rms of each row. x, delta, sum, y [N, H] T; weight [H] T; scale [N] W.
  virtual void AddNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                       double eps, at::Tensor& sum, at::Tensor& y, at::Tensor& scale) = 0;
  // y once more from what AddNorm left, equal bit for bit.
  virtual void RecomputeRmsNorm(const at::Tensor& sum, const at::Tensor& weight,
                                const at::Tensor& scale, at::Tensor& y) = 0;
  // gradient (of sum, [N, H] T) += the norm's part from y_gradient; weight_gradient [H].
  virtual void NormBackward(const at::Tensor& y_gradient, const at::Tensor& sum,
                            const at::Tensor& weight, const at::Tensor& scale, at::Tensor& gradient,
                            const GradientTarget& weight_gradient) = 0;

  // Each query and key head over its own root mean square, times a weight, rounded as Hugging
  // Face's Qwen3RMSNorm: normed in W, to T, times the weight. Values are copied. qkv and out
  // [N, joined width] T, apart; the weights [head_dim] T; scale [N, heads + kv_heads] W, written:
  // 1 / rms of each head.
  virtual void QkNorm(const at::Tensor& qkv, const at::Tensor& query_weight,
                      const at::Tensor& key_weight, double eps, const AttentionHeads& heads,
                      at::Tensor& out, at::Tensor& scale) = 0;
  // gradient [N, joined width] T, of out, becomes that of qkv.
  virtual void QkNormBackward(const at::Tensor& qkv, const at::Tensor& query_weight,
                              const at::Tensor& key_weight, const at::Tensor& scale,
                              const AttentionHeads& heads, at::Tensor& gradient,
                              const GradientTarget& query_weight_gradient,
                              const GradientTarget& key_weight_gradient) = 0;

  // Turns query and key of qkv [N, joined width] in place by the angles of their positions, which
  // are counted from the document's begin; cos and sin [length, head_dim / 2] W. direction 1:
  // forward; -1: gradients, back.
  virtual void ApplyRope(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                         const BatchShape& shape, const AttentionHeads& heads, int direction) = 0;

  // Causal attention over each document of the batch, within the window, scores scaled by
  // 1 / sqrt(head_dim). qkv rotated [N, joined width]; out [N, heads * head_dim]; lse
  // [rows, heads, length] W, in an order of the implementation's own where documents are named:
  // only AttentionBackward of the same shape reads it.
  virtual void Attention(const at::Tensor& qkv, const BatchShape& shape,
                         const AttentionHeads& heads, at::Tensor& out, at::Tensor& lse) = 0;
  virtual void AttentionBackward(const at::Tensor& qkv, const at::Tensor& out,
                                 const at::Tensor& lse, const at::Tensor& out_gradient,
                                 const BatchShape& shape, const AttentionHeads& heads,
                                 at::Tensor& qkv_gradient) = 0;

  // gate_up [N, 2 * inner] -> out [N, inner] = silu(gate) * up.
  virtual void SwiGlu(const at::Tensor& gate_up, at::Tensor& out) = 0;
  // gate_up becomes its own gradient; out is computed again on the way.
  virtual void SwiGluBackward(at::Tensor& gate_up, const at::Tensor& out_gradient,
                              at::Tensor& out) = 0;

  // out = x where the mask of `key` and p lets an element count, over 1 - p, else 0 (the mask is
  // trainer/ops/cpu/dropout.h's, the same on every device). x and out [N, any] T; out may be x.
  // 0 <= p < 1.
  virtual void Dropout(const at::Tensor& x, DropoutKey key, double p, at::Tensor& out) = 0;

  // logits [n, V] T become the gradient of scale * sum of cross entropies; a negative label
  // counts nothing. labels [n] int64. loss[0] (fp64, on the device) += unscaled sum.
  virtual void CrossEntropy(at::Tensor& logits, const at::Tensor& labels, double scale,
                            at::Tensor& loss) = 0;

  // out = the values of a quantised tensor, rounded to T; as many as it has, in any shape.
  virtual void DequantizeNf4(const Nf4Source& source, at::Tensor& out) = 0;

  // table_gradient[ids[i]] (+)= gradient[i], repeated ids added up in W and in order. ids [N]
  // int64, gradient [N, H] T, table [V, H]. Without add every other row becomes zero.
  virtual void EmbeddingBackward(const at::Tensor& gradient, const at::Tensor& ids,
                                 const GradientTarget& table_gradient) = 0;

  virtual void AdamW(const OptimizerArrays& arrays, const AdamWOptions& options,
                     const AdamWStep& step) = 0;
  // sum[0] (fp64, on the device) += sum of squares, added up in an order that does not depend on
  // the number of threads.
  virtual void SumOfSquares(const void* values, ElementType type, std::int64_t count,
                            at::Tensor& sum) = 0;
  // to[i] = from[i], or += where `add`; to nearest, ties to even.
  virtual void Convert(const void* from, ElementType from_type, void* to, ElementType to_type,
                       std::int64_t count, bool add) = 0;
};

std::unique_ptr<DeviceOps> MakeCpuOps();

}  // namespace muster
