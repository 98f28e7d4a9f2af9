#include "trainer/model/llama_head.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "common/base/round_up.h"
#include "trainer/ops/cross_entropy.h"
#include "trainer/ops/norm.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

// Matrix libraries compile and keep a kernel for every shape that they meet, so counts of rows are
// rounded up to multiples of this; it also suits their blocks.
constexpr std::int64_t kRowMultiple = 64;

void ZeroUnlessAdded(const GradientTarget& target) {
  if (target.tensor.defined() && !target.add) target.tensor.zero_();
}

}  // namespace

std::int64_t LlamaHead::DefaultChunkBytes(at::Device device) {
  return device.is_cpu() ? std::int64_t{8} << 20 : std::int64_t{1} << 30;
}

LlamaHead::LlamaHead(DeviceOps& ops, at::ScalarType compute_type, std::int64_t chunk_bytes)
    : ops_(ops),
      type_(compute_type),
      chunk_bytes_(chunk_bytes),
      arena_(ops),
      weight_gradient_(ops) {}

at::Tensor LlamaHead::Run(const HeadTask& task, at::Tensor& loss) {
  const at::NoGradGuard no_grad;
  Fit(task);
  if (task.labels.numel() == 0) {
    ZeroUnlessAdded(task.norm_gradient);
    ZeroUnlessAdded(task.head_gradient);
    return buffers_.gradient.zero_();
  }
  Rows rows = Gather(task);
  LossAndProducts(task, rows, loss);
  NormBackward(task, rows);
  return buffers_.gradient;
}

void LlamaHead::Measure(const HeadTask& task, at::Tensor& loss, at::Tensor& correct) {
  const at::NoGradGuard no_grad;
  Fit(task);
  if (task.labels.numel() == 0) return;
  const Rows rows = Gather(task);
  OverLogits(task, rows, [&](std::int64_t begin, std::int64_t size, at::Tensor& logits) {
    const at::Tensor labels = rows.labels.narrow(0, begin, size);
    const at::Tensor of_label = logits.gather(1, labels.clamp_min(0).unsqueeze(1)).squeeze(1);
    // A cap changes no order.
    const at::Tensor is_best = of_label.ge(logits.amax(1)).logical_and_(labels.ge(0));
    correct.add_(is_best.sum());
    // Makes the logits something else.
    ops_.Run(op::CrossEntropy{logits, labels, 1, loss, task.cap});
  });
}

at::Tensor LlamaHead::Choose(const HeadTask& task, std::int64_t words) {
  const at::NoGradGuard no_grad;
  Fit(task);
  at::Tensor chosen = at::empty_like(task.positions);
  const std::int64_t count = chosen.numel();
  if (count == 0) return chosen;
  const Rows rows = Gather(task);
  // All rows where each is wanted, else the wanted ones, filled up.
  OverLogits(task, rows, [&](std::int64_t begin, std::int64_t size, at::Tensor& logits) {
    const std::int64_t wanted = std::min(size, count - begin);
    if (wanted <= 0) return;
    chosen.narrow(0, begin, wanted)
        .copy_(logits.narrow(0, 0, wanted).narrow(1, 0, words).argmax(1));
  });
  return chosen;
}

void LlamaHead::Fit(const HeadTask& task) {
  const Shape shape{.tokens = task.hidden.sum.size(0),
                    .hidden = task.hidden.sum.size(1),
                    .vocabulary = task.head.size(0),
                    .trains_head = task.head_gradient.tensor.defined()};
  arena_.Fit([&](BumpAllocator& allocator) { buffers_ = Cut(allocator, shape); });
}

LlamaHead::Buffers LlamaHead::Cut(BumpAllocator& allocator, const Shape& shape) const {
  const auto& [tokens, hidden, vocabulary, trains_head] = shape;
  const std::int64_t chunk = ChunkRows(tokens, vocabulary);
  Buffers buffers;
  buffers.sum = allocator.Cut({tokens, hidden}, type_);
  buffers.normed = allocator.Cut({tokens, hidden}, type_);
  buffers.normed_gradient = allocator.Cut({tokens, hidden}, type_);
  buffers.gradient = allocator.Cut({tokens, hidden}, type_);
  buffers.scale = allocator.Cut({tokens}, WideType(type_));
  buffers.labels = allocator.Cut({tokens}, at::kLong);
  buffers.logits = allocator.Cut({chunk, vocabulary}, type_);
  if (trains_head && chunk < tokens && at::elementSize(type_) == 2) {
    buffers.head_gradient = allocator.Cut({vocabulary, hidden}, at::kFloat);
  }
  return buffers;
}

std::int64_t LlamaHead::BytesFor(const Shape& shape) const {
  BumpAllocator measure;
  Cut(measure, shape);
  return measure.used();
}

// Chunks of about equal size, none larger than chunk_bytes unless a single row is.
std::int64_t LlamaHead::ChunkRows(std::int64_t rows, std::int64_t vocabulary) const {
  const auto row_bytes = vocabulary * static_cast<std::int64_t>(at::elementSize(type_));
  std::int64_t most = std::max<std::int64_t>(1, chunk_bytes_ / row_bytes);
  if (most >= rows) return rows;
  const std::int64_t multiple = most >= kRowMultiple ? kRowMultiple : 1;
  most = most / multiple * multiple;
  const std::int64_t chunks = (rows + most - 1) / most;
  return RoundUp((rows + chunks - 1) / chunks, multiple);
}

// Norms the labelled rows: all, as they lie; or gathered, and filled up with rows without a label.
LlamaHead::Rows LlamaHead::Gather(const HeadTask& task) {
  const std::int64_t tokens = task.hidden.sum.size(0), count = task.labels.numel();
  const bool all = count == tokens;
  const std::int64_t filled = std::min(RoundUp(count, kRowMultiple), tokens);
  const auto first = [&](const at::Tensor& buffer) { return buffer.narrow(0, 0, filled); };
  Rows rows{.sum = first(buffers_.sum),
            .normed = first(buffers_.normed),
            .normed_gradient = first(buffers_.normed_gradient),
            .scale = first(buffers_.scale),
            .labels = all ? task.labels : first(buffers_.labels)};
  ResidualStream hidden = task.hidden;
  if (!all) {
    const auto gather = [&](const at::Tensor& from, const at::Tensor& to) {
      at::Tensor labelled = to.narrow(0, 0, count);
      at::index_select_out(labelled, from, 0, task.positions);
      to.narrow(0, count, filled - count).fill_(1);  // a row that every norm can take
      return to;
    };
    hidden.sum = gather(task.hidden.sum, rows.sum);
    if (hidden.delta.defined()) hidden.delta = gather(task.hidden.delta, rows.normed_gradient);
    rows.labels.narrow(0, 0, count).copy_(task.labels);
    rows.labels.narrow(0, count, filled - count).fill_(-1);
  }
  ops_.Run(op::AddNorm{hidden.sum, hidden.delta, task.norm, task.eps, rows.sum, rows.normed,
                       rows.scale, task.zero_centered});
  return rows;
}

void LlamaHead::OverLogits(const HeadTask& task, const Rows& rows, const UseLogits& use) {
  const std::int64_t count = rows.labels.numel(), chunk_rows = buffers_.logits.size(0);
  for (std::int64_t begin = 0; begin < count; begin += chunk_rows) {
    const std::int64_t size = std::min(chunk_rows, count - begin);
    at::Tensor logits = buffers_.logits.narrow(0, 0, size);
    LinearForward(rows.normed.narrow(0, begin, size), task.head, logits);
    if (task.logits_scaling != 1) logits.div_(task.logits_scaling);
    use(begin, size, logits);
  }
}

void LlamaHead::LossAndProducts(const HeadTask& task, Rows& rows, at::Tensor& loss) {
  const bool adds_up =
      buffers_.head_gradient.defined() && rows.labels.numel() > buffers_.logits.size(0);
  GradientTarget head_gradient =
      adds_up ? GradientTarget{.tensor = buffers_.head_gradient} : task.head_gradient;
  OverLogits(task, rows, [&](std::int64_t begin, std::int64_t size, at::Tensor& logits) {
    // What becomes of the logits is the gradient of what the product gave.
    const double scale = task.scale / task.logits_scaling;
    ops_.Run(op::CrossEntropy{logits, rows.labels.narrow(0, begin, size), scale, loss, task.cap});
    at::Tensor normed_gradient = rows.normed_gradient.narrow(0, begin, size);
    LinearInputGradient(logits, task.head, normed_gradient);
    if (head_gradient.tensor.defined()) {
      weight_gradient_.Write(logits, rows.normed.narrow(0, begin, size), head_gradient);
    }
    head_gradient.add = true;
  });
  if (adds_up) Deliver(ops_, buffers_.head_gradient, task.head_gradient);
}

void LlamaHead::NormBackward(const HeadTask& task, Rows& rows) {
  at::Tensor gradient = buffers_.gradient;
  const std::int64_t tokens = gradient.size(0), count = task.labels.numel();
  gradient.zero_();
  if (count == tokens) {
    ops_.Run(op::NormBackward{rows.normed_gradient, rows.sum, task.norm, rows.scale, gradient,
                              task.norm_gradient, task.zero_centered});
    return;
  }
  // The products have read the norm's output; its memory takes the gradient of the gathered rows.
  at::Tensor gathered = rows.normed.zero_();
  ops_.Run(op::NormBackward{rows.normed_gradient, rows.sum, task.norm, rows.scale, gathered,
                            task.norm_gradient, task.zero_centered});
  gradient.index_copy_(0, task.positions, gathered.narrow(0, 0, count));
}

}  // namespace muster
