#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "trainer/core/convert.h"
#include "trainer/ops/cpu/attention.h"
#include "trainer/ops/cpu/cpu_features.h"
#include "trainer/ops/cpu/cross_entropy.h"
#include "trainer/ops/cpu/dropout.h"
#include "trainer/ops/cpu/embedding.h"
#include "trainer/ops/cpu/gate.h"
#include "trainer/ops/cpu/norm.h"
#include "trainer/ops/cpu/rotary.h"
#include "trainer/ops/cpu_memory.h"
#include "trainer/ops/device_ops.h"
#include "trainer/ops/documents.h"
#include "trainer/ops/op_checks.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

// Elements of work that are worth another thread.
constexpr std::int64_t kGrain = std::int64_t{1} << 15;
// Arrays are added up in parts of this size, whatever the number of threads.
constexpr std::int64_t kSumBlock = std::int64_t{1} << 16;
// Partial sums of a norm weight's gradient: few enough to stay small, enough for many threads.
constexpr std::int64_t kNormBlocks = 64;

template <typename T>
T* Data(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

ElementType TypeOf(const at::Tensor& tensor) { return ElementTypeOf(tensor.scalar_type()); }

// Calls f with a null pointer of the kernels' element type.
template <typename F>
void WithElement(const at::Tensor& tensor, F f) {
  switch (TypeOf(tensor)) {
    case ElementType::kFloat64: return f(static_cast<double*>(nullptr));
    case ElementType::kFloat32: return f(static_cast<float*>(nullptr));
    case ElementType::kBFloat16: return f(static_cast<BFloat16*>(nullptr));
    case ElementType::kFloat16: return f(static_cast<Float16*>(nullptr));
    default: TORCH_CHECK(false, tensor.scalar_type(), " is not fp64, fp32, bf16 or fp16");
  }
}

// Cuts [0, count) into ranges for the threads, each worth kGrain elements.
template <typename F>
void OverRows(std::int64_t count, std::int64_t width, F f) {
  at::parallel_for(0, count, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, width)),
                   f);
}

// `bounds` are the batch's documents, and outlive the result.
AttentionShape ShapeOfAttention(const std::vector<std::int64_t>& bounds,
                                const AttentionHeads& heads) {
  return {.batch = std::ssize(bounds) - 1,
          .length = LongestDocument(bounds),
          .heads = heads.heads,
          .kv_heads = heads.kv_heads,
          .head_dim = heads.head_dim,
          .scale = 1.0 / std::sqrt(static_cast<double>(heads.head_dim)),
          .window = heads.window,
          .bounds = bounds.data()};
}

// Calls f(begin, end) for every task of attention. Whichever thread is free takes the next one, the
// longest first, so that one long document and many short ones keep all threads busy; the bits do
// not depend on who computes a task.
template <typename F>
void OverTasks(const AttentionShape& shape, F f) {
  const std::int64_t* bounds = shape.bounds;
  std::vector<std::int64_t> documents(static_cast<std::size_t>(shape.batch));
  std::iota(documents.begin(), documents.end(), 0);
  std::stable_sort(documents.begin(), documents.end(), [bounds](std::int64_t a, std::int64_t b) {
    return bounds[a + 1] - bounds[a] > bounds[b + 1] - bounds[b];
  });
  std::atomic<std::int64_t> next = 0;
  at::parallel_for(0, at::get_num_threads(), 1, [&](std::int64_t, std::int64_t) {
    for (std::int64_t i = next++; i < AttentionTasks(shape); i = next++) {
      const std::int64_t document = documents[static_cast<std::size_t>(i / shape.kv_heads)];
      const std::int64_t task = document * shape.kv_heads + i % shape.kv_heads;
      f(task, task + 1);
    }
  });
}

// Query, key and value in a joined array.
template <typename Element>
struct JoinedHeads {
  HeadArray<Element> query, key, value;

  JoinedHeads(const at::Tensor& joined, const AttentionHeads& h) {
    Element* data = static_cast<Element*>(joined.data_ptr());
    const std::int64_t stride = h.joined_width();
    query = {data, stride};
    key = {data + h.heads * h.head_dim, stride};
    value = {data + (h.heads + h.kv_heads) * h.head_dim, stride};
  }
};

// The gradient of a norm's weight, added up in parts. The cut depends on the number of rows alone,
// so the order of additions does too.
class WeightParts {
 public:
  explicit WeightParts(std::int64_t rows)
      : rows_(rows),
        block_(std::max<std::int64_t>(16, (rows + kNormBlocks - 1) / kNormBlocks)),
        blocks_((rows + block_ - 1) / block_) {}

  // [parts, width], zero; undefined where the target is.
  at::Tensor For(const at::Tensor& target, at::ScalarType wide) const {
    if (!target.defined()) return {};
    return at::zeros({std::max<std::int64_t>(1, blocks_), target.size(0)}, wide);
  }

  // Calls f(part, begin, end) for the rows of each part.
  template <typename F>
  void Over(std::int64_t width, F f) const {
    OverRows(blocks_, block_ * width, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t b = first; b < last; ++b) {
        f(b, b * block_, std::min(rows_, (b + 1) * block_));
      }
    });
  }

  void Join(const at::Tensor& parts, const GradientTarget& target) const {
    if (!parts.defined()) return;
    const std::int64_t width = parts.size(1);
    const ElementType wide = TypeOf(parts);
    std::byte* total = static_cast<std::byte*>(parts.data_ptr());
    const std::int64_t row_bytes = width * static_cast<std::int64_t>(ElementSize(wide));
    for (std::int64_t b = 1; b < blocks_; ++b) {
      muster::Convert(total + b * row_bytes, wide, total, wide, width, true);
    }
    muster::Convert(total, wide, target.tensor.data_ptr(), TypeOf(target.tensor), width,
                    target.add);
  }

 private:
  std::int64_t rows_, block_, blocks_;
};

// Null where there are no parts.
template <typename Real>
Real* PartOf(const at::Tensor& parts, std::int64_t part) {
  return parts.defined() ? Data<Real>(parts) + part * parts.size(1) : nullptr;
}

class DoneCopy final : public DeviceCopy {
 public:
  void WaitOnDevice() override {}
  void WaitOnHost() override {}
};

class CpuOps : public DeviceOps {
 public:
  at::Device device() const override { return at::kCPU; }
  std::string Describe() const override;
  at::Tensor Allocate(std::size_t bytes) override { return MapZeroed(bytes); }
  at::Tensor AllocateHost(std::size_t bytes) override { return MapZeroed(bytes); }
  std::shared_ptr<void> PinHost(void*, std::size_t) override { return nullptr; }
  bool is_host() const override { return true; }
  std::unique_ptr<DeviceCopy> Copy(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
    return std::make_unique<DoneCopy>();
  }

  void AddNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps,
               at::Tensor& sum, at::Tensor& y, at::Tensor& scale) override;
  void RecomputeRmsNorm(const at::Tensor& sum, const at::Tensor& weight, const at::Tensor& scale,
                        at::Tensor& y) override;
  void NormBackward(const at::Tensor& y_gradient, const at::Tensor& sum, const at::Tensor& weight,
                    const at::Tensor& scale, at::Tensor& gradient,
                    const GradientTarget& weight_gradient) override;
  void QkNorm(const at::Tensor& qkv, const at::Tensor& query_weight, const at::Tensor& key_weight,
              double eps, const AttentionHeads& heads, at::Tensor& out, at::Tensor& scale) override;
  void QkNormBackward(const at::Tensor& qkv, const at::Tensor& query_weight,
                      const at::Tensor& key_weight, const at::Tensor& scale,
                      const AttentionHeads& heads, at::Tensor& gradient,
                      const GradientTarget& query_weight_gradient,
                      const GradientTarget& key_weight_gradient) override;
  void ApplyRope(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                 const BatchShape& shape, const AttentionHeads& heads, int direction) override;
  void Attention(const at::Tensor& qkv, const BatchShape& shape, const AttentionHeads& heads,
                 at::Tensor& out, at::Tensor& lse) override;
  void AttentionBackward(const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& lse,
                         const at::Tensor& out_gradient, const BatchShape& shape,
                         const AttentionHeads& heads, at::Tensor& qkv_gradient) override;
  void SwiGlu(const at::Tensor& gate_up, at::Tensor& out) override;
  void SwiGluBackward(at::Tensor& gate_up, const at::Tensor& out_gradient,
                      at::Tensor& out) override;
  void Dropout(const at::Tensor& x, DropoutKey key, double p, at::Tensor& out) override;
  void CrossEntropy(at::Tensor& logits, const at::Tensor& labels, double scale,
                    at::Tensor& loss) override;
  void DequantizeNf4(const Nf4Source& source, at::Tensor& out) override;
  void EmbeddingBackward(const at::Tensor& gradient, const at::Tensor& ids,
                         const GradientTarget& table_gradient) override;
  void AdamW(const OptimizerArrays& arrays, const AdamWOptions& options,
             const AdamWStep& step) override;
  void SumOfSquares(const void* values, ElementType type, std::int64_t count,
                    at::Tensor& sum) override;
  void Convert(const void* from, ElementType from_type, void* to, ElementType to_type,
               std::int64_t count, bool add) override;

 private:
  const OpChecks checks_{at::kCPU};
};

std::string CpuOps::Describe() const {
  const CpuFeatures& cpu = ThisCpu();
  if (cpu.amx_bf16) return "AMX, AVX-512";
  if (cpu.avx512) return "AVX-512";
  if (cpu.avx2) return "AVX2";
  return "portable";
}

void CpuOps::AddNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                     double eps, at::Tensor& sum, at::Tensor& y, at::Tensor& scale) {
  checks_.AddNorm(x, delta, weight, sum, y, scale);
  const std::int64_t count = x.size(0), width = x.size(1);
  WithElement(x, [&]<typename T>(T*) {
    const NormRows<T> rows{.width = width,
                           .eps = eps,
                           .x = Data<T>(x),
                           .delta = delta.defined() ? Data<T>(delta) : nullptr,
                           .sum = Data<T>(sum),
                           .weight = Data<T>(weight),
                           .scale = Data<Wide<T>>(scale),
                           .y = Data<T>(y)};
    OverRows(count, width, [&](auto begin, auto end) { muster::AddNorm(rows, begin, end); });
  });
}

void CpuOps::RecomputeRmsNorm(const at::Tensor& sum, const at::Tensor& weight,
                              const at::Tensor& scale, at::Tensor& y) {
  checks_.RecomputeRmsNorm(sum, weight, scale, y);
  const std::int64_t count = sum.size(0), width = sum.size(1);
  WithElement(sum, [&]<typename T>(T*) {
    const NormRows<T> rows{.width = width,
                           .sum = Data<T>(sum),
                           .weight = Data<T>(weight),
                           .scale = Data<Wide<T>>(scale),
                           .y = Data<T>(y)};
    OverRows(count, width,
             [&](auto begin, auto end) { muster::RecomputeRmsNorm(rows, begin, end); });
  });
}

void CpuOps::NormBackward(const at::Tensor& y_gradient, const at::Tensor& sum,
                          const at::Tensor& weight, const at::Tensor& scale, at::Tensor& gradient,
                          const GradientTarget& weight_gradient) {
  const at::Tensor& target = weight_gradient.tensor;
  checks_.NormBackward(y_gradient, sum, weight, scale, gradient, target);
  const std::int64_t width = sum.size(1);
  const WeightParts cut(sum.size(0));
  const at::Tensor parts = cut.For(target, WideType(sum.scalar_type()));
  WithElement(sum, [&]<typename T>(T*) {
    cut.Over(width, [&](std::int64_t b, std::int64_t begin, std::int64_t end) {
      const NormBackwardRows<T> rows{.width = width,
                                     .y_gradient = Data<T>(y_gradient),
                                     .sum = Data<T>(sum),
                                     .weight = Data<T>(weight),
                                     .scale = Data<Wide<T>>(scale),
                                     .gradient = Data<T>(gradient),
                                     .weight_gradient = PartOf<Wide<T>>(parts, b)};
      muster::NormBackward(rows, begin, end);
    });
  });
  cut.Join(parts, weight_gradient);
}

void CpuOps::QkNorm(const at::Tensor& qkv, const at::Tensor& query_weight,
                    const at::Tensor& key_weight, double eps, const AttentionHeads& heads,
                    at::Tensor& out, at::Tensor& scale) {
  checks_.QkNorm(qkv, query_weight, key_weight, heads, out, scale);
  WithElement(qkv, [&]<typename T>(T*) {
    const QkNormRows<T> rows{.heads = heads.heads,
                             .kv_heads = heads.kv_heads,
                             .head_dim = heads.head_dim,
                             .eps = eps,
                             .joined = Data<T>(qkv),
                             .query_weight = Data<T>(query_weight),
                             .key_weight = Data<T>(key_weight),
                             .scale = Data<Wide<T>>(scale),
                             .out = Data<T>(out)};
    OverRows(qkv.size(0), heads.joined_width(),
             [&](auto begin, auto end) { muster::QkNorm(rows, begin, end); });
  });
}

void CpuOps::QkNormBackward(const at::Tensor& qkv, const at::Tensor& query_weight,
                            const at::Tensor& key_weight, const at::Tensor& scale,
                            const AttentionHeads& heads, at::Tensor& gradient,
                            const GradientTarget& query_weight_gradient,
                            const GradientTarget& key_weight_gradient) {
  checks_.QkNormBackward(qkv, query_weight, key_weight, scale, heads, gradient,
                         query_weight_gradient.tensor, key_weight_gradient.tensor);
  const WeightParts cut(qkv.size(0));
  const at::ScalarType wide = WideType(qkv.scalar_type());
  const at::Tensor query_parts = cut.For(query_weight_gradient.tensor, wide);
  const at::Tensor key_parts = cut.For(key_weight_gradient.tensor, wide);
  WithElement(qkv, [&]<typename T>(T*) {
    cut.Over(heads.joined_width(), [&](std::int64_t b, std::int64_t begin, std::int64_t end) {
      const QkNormBackwardRows<T> rows{.heads = heads.heads,
                                       .kv_heads = heads.kv_heads,
                                       .head_dim = heads.head_dim,
                                       .joined = Data<T>(qkv),
                                       .query_weight = Data<T>(query_weight),
                                       .key_weight = Data<T>(key_weight),
                                       .scale = Data<Wide<T>>(scale),
                                       .gradient = Data<T>(gradient),
                                       .query_weight_gradient = PartOf<Wide<T>>(query_parts, b),
                                       .key_weight_gradient = PartOf<Wide<T>>(key_parts, b)};
      muster::QkNormBackward(rows, begin, end);
    });
  });
  cut.Join(query_parts, query_weight_gradient);
  cut.Join(key_parts, key_weight_gradient);
}

void CpuOps::ApplyRope(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                       const BatchShape& shape, const AttentionHeads& heads, int direction) {
  checks_.ApplyRope(qkv, cos, sin, shape, heads);
  const bool packed = !shape.document_begins.empty();
  const std::vector<std::int32_t> positions =
      packed ? TokenPositions(shape) : std::vector<std::int32_t>();
  WithElement(qkv, [&]<typename T>(T*) {
    const RotaryRows<T> rows{.heads = heads.heads + heads.kv_heads,
                             .head_dim = heads.head_dim,
                             .stride = heads.joined_width(),
                             .length = shape.length,
                             .positions = packed ? positions.data() : nullptr,
                             .cos = Data<Wide<T>>(cos),
                             .sin = Data<Wide<T>>(sin),
                             .direction = direction,
                             .joined = Data<T>(qkv)};
    OverRows(shape.tokens(), rows.stride,
             [&](auto begin, auto end) { muster::ApplyRope(rows, begin, end); });
  });
}

void CpuOps::Attention(const at::Tensor& qkv, const BatchShape& shape, const AttentionHeads& heads,
                       at::Tensor& out, at::Tensor& lse) {
  checks_.Attention(qkv, shape, heads, out, lse);
  const std::int64_t width = heads.heads * heads.head_dim;
  WithElement(qkv, [&]<typename T>(T*) {
    const JoinedHeads<const T> in(qkv, heads);
    const AttentionForwardArrays<T> arrays{.query = in.query,
                                           .key = in.key,
                                           .value = in.value,
                                           .out = {Data<T>(out), width},
                                           .lse = Data<Wide<T>>(lse)};
    const std::vector<std::int64_t> bounds = DocumentBounds(shape);
    const AttentionShape attention = ShapeOfAttention(bounds, heads);
    OverTasks(attention,
              [&](auto begin, auto end) { AttentionForward(attention, arrays, begin, end); });
  });
}

void CpuOps::AttentionBackward(const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& lse,
                               const at::Tensor& out_gradient, const BatchShape& shape,
                               const AttentionHeads& heads, at::Tensor& qkv_gradient) {
  checks_.AttentionBackward(qkv, out, lse, out_gradient, shape, heads, qkv_gradient);
  const std::int64_t width = heads.heads * heads.head_dim;
  WithElement(qkv, [&]<typename T>(T*) {
    const JoinedHeads<const T> in(qkv, heads);
    const JoinedHeads<T> gradients(qkv_gradient, heads);
    const AttentionBackwardArrays<T> arrays{.query = in.query,
                                            .key = in.key,
                                            .value = in.value,
                                            .out = {Data<T>(out), width},
                                            .out_gradient = {Data<T>(out_gradient), width},
                                            .lse = Data<Wide<T>>(lse),
                                            .query_gradient = gradients.query,
                                            .key_gradient = gradients.key,
                                            .value_gradient = gradients.value};
    const std::vector<std::int64_t> bounds = DocumentBounds(shape);
    const AttentionShape attention = ShapeOfAttention(bounds, heads);
    OverTasks(attention, [&](auto begin, auto end) {
      muster::AttentionBackward(attention, arrays, begin, end);
    });
  });
}

void CpuOps::SwiGlu(const at::Tensor& gate_up, at::Tensor& out) {
  checks_.SwiGlu(gate_up, out);
  const std::int64_t count = out.size(0), width = out.size(1);
  WithElement(gate_up, [&]<typename T>(T*) {
    const GateRows<T> rows{.width = width, .gate_up = Data<T>(gate_up), .out = Data<T>(out)};
    OverRows(count, 2 * width, [&](auto begin, auto end) { muster::SwiGlu(rows, begin, end); });
  });
}

void CpuOps::SwiGluBackward(at::Tensor& gate_up, const at::Tensor& out_gradient, at::Tensor& out) {
  checks_.SwiGluBackward(gate_up, out_gradient, out);
  const std::int64_t count = out.size(0), width = out.size(1);
  WithElement(gate_up, [&]<typename T>(T*) {
    const GateRows<T> rows{.width = width,
                           .gate_up = Data<T>(gate_up),
                           .out_gradient = Data<T>(out_gradient),
                           .out = Data<T>(out)};
    OverRows(count, 2 * width,
             [&](auto begin, auto end) { muster::SwiGluBackward(rows, begin, end); });
  });
}

void CpuOps::Dropout(const at::Tensor& x, DropoutKey key, double p, at::Tensor& out) {
  checks_.Dropout(x, p, out);
  const std::int64_t count = x.size(0), width = x.size(1);
  WithElement(x, [&]<typename T>(T*) {
    const DropoutRows<T> rows{
        .width = width, .key = key, .p = p, .x = Data<T>(x), .out = Data<T>(out)};
    OverRows(count, width, [&](auto begin, auto end) { muster::Dropout(rows, begin, end); });
  });
}

void CpuOps::CrossEntropy(at::Tensor& logits, const at::Tensor& labels, double scale,
                          at::Tensor& loss) {
  checks_.CrossEntropy(logits, labels, loss);
  const std::int64_t count = logits.size(0), width = logits.size(1);
  const std::span<const std::int64_t> words(Data<std::int64_t>(labels),
                                            static_cast<std::size_t>(count));
  TORCH_CHECK(std::all_of(words.begin(), words.end(), [&](auto word) { return word < width; }),
              "a label is beyond the ", width, " words of the vocabulary");
  std::vector<double> losses(words.size());
  WithElement(logits, [&]<typename T>(T*) {
    const CrossEntropyRows<T> rows{.width = width,
                                   .labels = words.data(),
                                   .scale = scale,
                                   .logits = Data<T>(logits),
                                   .losses = losses.data()};
    OverRows(count, width, [&](auto begin, auto end) { muster::CrossEntropy(rows, begin, end); });
  });
  double sum = 0;
  for (const double row : losses) sum += row;
  *Data<double>(loss) += sum;
}

void CpuOps::DequantizeNf4(const Nf4Source& source, at::Tensor& out) {
  checks_.DequantizeNf4(source, out);
  WithElement(out, [&]<typename T>(T*) {
    const Nf4Rows<T> rows{source, Data<T>(out)};
    OverRows(Nf4Blocks(source.count), kNf4Block,
             [&](auto begin, auto end) { muster::DequantizeNf4(rows, begin, end); });
  });
}

void CpuOps::EmbeddingBackward(const at::Tensor& gradient, const at::Tensor& ids,
                               const GradientTarget& table_gradient) {
  const at::Tensor& table = table_gradient.tensor;
  checks_.EmbeddingBackward(gradient, ids, table);
  const std::int64_t width = gradient.size(1), words = table.size(0);
  const WordIndex index =
      IndexWords({Data<std::int64_t>(ids), static_cast<std::size_t>(ids.numel())});
  TORCH_CHECK(
      index.words.empty() || (index.words.front().word >= 0 && index.words.back().word < words),
      "an id is not one of the ", words, " words of the vocabulary");
  std::byte* rows = static_cast<std::byte*>(table.data_ptr());
  const ElementType type = TypeOf(table);
  const std::int64_t row_bytes = width * static_cast<std::int64_t>(ElementSize(type));
  const auto zero = [&](std::int64_t begin, std::int64_t end) {
    if (!table_gradient.add)
      std::fill(rows + begin * row_bytes, rows + end * row_bytes, std::byte{0});
  };
  const auto word = [&](std::int64_t i) { return index.words[static_cast<std::size_t>(i)]; };
  const std::int64_t present = std::ssize(index.words);
  zero(present == 0 ? 0 : word(present - 1).word + 1, words);
  WithElement(gradient, [&]<typename T>(T*) {
    OverRows(present, width, [&](std::int64_t begin, std::int64_t end) {
      std::vector<Wide<T>> sum(static_cast<std::size_t>(width));
      const PlacedRows<T> placed{.width = width,
                                 .values = Data<T>(gradient),
                                 .places = index.places.data(),
                                 .sum = sum.data()};
      for (std::int64_t i = begin; i < end; ++i) {
        zero(i == 0 ? 0 : word(i - 1).word + 1, word(i).word);
        SumPlaced(placed, word(i).begin, word(i).end);
        constexpr ElementType kWide =
            sizeof(Wide<T>) == sizeof(double) ? ElementType::kFloat64 : ElementType::kFloat32;
        muster::Convert(sum.data(), kWide, rows + word(i).word * row_bytes, type, width,
                        table_gradient.add);
      }
    });
  });
}

void CpuOps::AdamW(const OptimizerArrays& arrays, const AdamWOptions& options,
                   const AdamWStep& step) {
  at::parallel_for(0, arrays.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    AdamWUpdate(arrays, begin, end, options, step);
  });
}

void CpuOps::SumOfSquares(const void* values, ElementType type, std::int64_t count,
                          at::Tensor& sum) {
  checks_.Sum(sum, "the sum of squares");
  const std::int64_t blocks = (count + kSumBlock - 1) / kSumBlock;
  std::vector<double> parts(static_cast<std::size_t>(blocks));
  const std::byte* bytes = static_cast<const std::byte*>(values);
  at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::size_t offset = static_cast<std::size_t>(b * kSumBlock) * ElementSize(type);
      parts[static_cast<std::size_t>(b)] =
          muster::SumOfSquares(bytes + offset, type, std::min(kSumBlock, count - b * kSumBlock));
    }
  });
  double total = 0;
  for (const double part : parts) total += part;
  *Data<double>(sum) += total;
}

void CpuOps::Convert(const void* from, ElementType from_type, void* to, ElementType to_type,
                     std::int64_t count, bool add) {
  const std::byte* source = static_cast<const std::byte*>(from);
  std::byte* target = static_cast<std::byte*>(to);
  at::parallel_for(0, count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const std::size_t at = static_cast<std::size_t>(begin);
    muster::Convert(source + at * ElementSize(from_type), from_type,
                    target + at * ElementSize(to_type), to_type, end - begin, add);
  });
}

}  // namespace

std::unique_ptr<DeviceOps> MakeCpuOps() { return std::make_unique<CpuOps>(); }

}  // namespace muster
