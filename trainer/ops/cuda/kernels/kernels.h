// The device's kernels, as functions that put them on a stream.
//
// Pointers are memory of the device, arrays contiguous in the order that the comments give. `type`
// is the type of all arrays that name no other: fp64, fp32, bf16 or fp16; W is fp64 for fp64, else
// fp32. Arithmetic is in W. Every result is a function of the arguments alone: there are no atomic
// additions, and the cut into blocks depends on shapes only, not on the GPU.
//
// Memory is read and written 16 bytes at a time where addresses and widths allow it. The functions
// return what the launch returns; errors of the run show later. Any thread.
#pragma once

#include <cstdint>

#include "trainer/core/cuda_api.h"
#include "trainer/ops/cpu/adamw.h"
#include "trainer/ops/cpu/dropout.h"
#include "trainer/ops/cpu/nf4.h"

namespace muster::cuda {

// [rows, width], weight [width], scale [rows] W. As DeviceOps::AddNorm and RecomputeRmsNorm.
struct Norm {
  ElementType type = ElementType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  double eps = 0;
  const void* x = nullptr;
  const void* delta = nullptr;  // null: nothing is added
  void* sum = nullptr;          // may be x
  const void* weight = nullptr;
  void* scale = nullptr;
  void* y = nullptr;
};
CudaResult AddNorm(const Norm& norm, CudaStream stream);
CudaResult RecomputeRmsNorm(const Norm& norm, CudaStream stream);

struct NormGradient {
  ElementType type = ElementType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const void* y_gradient = nullptr;
  const void* sum = nullptr;
  const void* weight = nullptr;
  const void* scale = nullptr;
  void* gradient = nullptr;         // of the sum; the norm's part is added
  void* parts = nullptr;            // scratch [NormParts(rows), width] W
  void* weight_gradient = nullptr;  // null, as are the parts: the weight is frozen
  ElementType weight_gradient_type = ElementType::kFloat32;
  bool add = false;  // to the weight's gradient
};
std::int64_t NormParts(std::int64_t rows);
CudaResult NormBackward(const NormGradient& norm, CudaStream stream);

// As DeviceOps::QkNorm; qkv and out [rows, (heads + 2 * kv_heads) * head_dim].
struct QkNorms {
  ElementType type = ElementType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double eps = 0;
  const void* qkv = nullptr;
  const void* query_weight = nullptr;
  const void* key_weight = nullptr;
  void* scale = nullptr;  // [rows, heads + kv_heads] W
  void* out = nullptr;
};
CudaResult QkNorm(const QkNorms& norms, CudaStream stream);

struct HeadWeightGradient {
  void* parts = nullptr;     // scratch [QkNormParts(rows), head_dim] W; null: the weight is frozen
  void* gradient = nullptr;  // [head_dim]
  ElementType type = ElementType::kFloat32;
  bool add = false;
};
struct QkNormGradient {
  ElementType type = ElementType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  const void* qkv = nullptr;
  const void* query_weight = nullptr;
  const void* key_weight = nullptr;
  const void* scale = nullptr;
  void* gradient = nullptr;  // of the output; becomes that of qkv
  HeadWeightGradient query;
  HeadWeightGradient key;
};
std::int64_t QkNormParts(std::int64_t rows);
CudaResult QkNormBackward(const QkNormGradient& norms, CudaStream stream);

// qkv [rows, stride] of which the first heads * head_dim columns are turned; cos, sin
// [length, head_dim / 2] W.
struct Rotation {
  ElementType type = ElementType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t stride = 0;
  std::int64_t length = 0;
  const std::int32_t* positions = nullptr;  // [rows]; null: the row modulo length
  void* qkv = nullptr;
  const void* cos = nullptr;
  const void* sin = nullptr;
  int direction = 1;
};
CudaResult ApplyRope(const Rotation& rotation, CudaStream stream);

// gate_up [rows, 2 * width], out and out_gradient [rows, width].
struct Gate {
  ElementType type = ElementType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  void* gate_up = nullptr;  // backward: becomes its gradient
  const void* out_gradient = nullptr;
  void* out = nullptr;
};
CudaResult SwiGlu(const Gate& gate, CudaStream stream);
CudaResult SwiGluBackward(const Gate& gate, CudaStream stream);

// As DeviceOps::Dropout; x and out [rows, width].
struct Drop {
  ElementType type = ElementType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  DropoutKey key;
  double p = 0;
  const void* x = nullptr;
  void* out = nullptr;  // may be x
};
CudaResult Dropout(const Drop& drop, CudaStream stream);

// logits [rows, width] become scale times the gradient of their cross entropy; *loss += the sum
// of losses. A label beyond the vocabulary makes its row and the loss NaN.
struct Loss {
  ElementType type = ElementType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const std::int64_t* labels = nullptr;
  double scale = 1;
  void* logits = nullptr;
  double* row_losses = nullptr;  // scratch [rows]
  double* loss = nullptr;
};
CudaResult CrossEntropy(const Loss& loss, CudaStream stream);

// table[word] (+)= the gradients at the places of the word, in order. `words` ascend; ids outside
// of the table are passed over.
struct Embedding {
  ElementType type = ElementType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t vocabulary = 0;
  const std::int64_t* words = nullptr;   // [rows], sorted
  const std::int64_t* places = nullptr;  // [rows]: the row of `gradient` of each sorted word
  const void* gradient = nullptr;
  void* table = nullptr;
  ElementType table_type = ElementType::kFloat32;
  bool add = false;
};
CudaResult EmbeddingBackward(const Embedding& embedding, CudaStream stream);

CudaResult AdamW(const OptimizerArrays& arrays, const AdamWOptions& options, const AdamWStep& step,
                 CudaStream stream);

// *sum += the sum of squares; parts is scratch [SquareParts(count)].
std::int64_t SquareParts(std::int64_t count);
CudaResult SumOfSquares(const void* values, ElementType type, std::int64_t count, double* parts,
                        double* sum, CudaStream stream);

CudaResult Convert(const ConvertRows& rows, CudaStream stream);

// out [source.count] of `type`; the source's arrays are the device's.
CudaResult DequantizeNf4(const Nf4Source& source, void* out, ElementType type, CudaStream stream);

}  // namespace muster::cuda
