#include "trainer/ops/cuda/fused_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "trainer/ops/cuda/math_attention.h"

namespace muster {
namespace {

const char* NameOf(AttentionBackend backend) {
  switch (backend) {
    case AttentionBackend::kCudnn: return "cuDNN";
    case AttentionBackend::kFlash: return "flash";
    case AttentionBackend::kPackedFlash: return "packed flash";
  }
  return "";
}

bool IsPacked(const BatchShape& shape, const AttentionHeads& heads) {
  return !shape.document_begins.empty() || heads.window > 0;
}

// [rows, heads, length, head_dim], as the kernels want them; no copies.
struct Heads {
  at::Tensor query, key, value;

  Heads(const at::Tensor& joined, const BatchShape& shape, const AttentionHeads& h) {
    const at::Tensor all =
        joined.view({shape.rows, shape.length, h.heads + 2 * h.kv_heads, h.head_dim})
            .transpose(1, 2);
    query = all.narrow(1, 0, h.heads);
    key = all.narrow(1, h.heads, h.kv_heads);
    value = all.narrow(1, h.heads + h.kv_heads, h.kv_heads);
  }
};

at::Tensor ByHead(const at::Tensor& array, const BatchShape& shape, const AttentionHeads& h) {
  return array.view({shape.rows, shape.length, h.heads, h.head_dim}).transpose(1, 2);
}

// [N, heads, head_dim], as flash attention wants documents; no copies.
struct PackedHeads {
  at::Tensor query, key, value;

  PackedHeads(const at::Tensor& joined, const AttentionHeads& h) {
    const at::Tensor all = joined.view({joined.size(0), h.heads + 2 * h.kv_heads, h.head_dim});
    query = all.narrow(1, 0, h.heads);
    key = all.narrow(1, h.heads, h.kv_heads);
    value = all.narrow(1, h.heads + h.kv_heads, h.kv_heads);
  }
};

at::Tensor PackedByHead(const at::Tensor& array, const AttentionHeads& h) {
  return array.view({array.size(0), h.heads, h.head_dim});
}

// How many keys before its own a query sees; flash attention does not count its own.
std::optional<std::int64_t> KeysBefore(const AttentionHeads& h) {
  return h.window > 0 ? std::optional(h.window - 1) : std::nullopt;
}

// The logarithms lie as [heads, N].
void RunPackedForward(const at::Tensor& qkv, const DocumentArrays& documents,
                      const AttentionHeads& h, at::Tensor& out, at::Tensor& lse) {
  const PackedHeads in(qkv, h);
  const auto all = at::_flash_attention_forward(
      in.query, in.key, in.value, documents.bounds, documents.bounds, documents.longest,
      documents.longest, /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false,
      h.score_scale(), KeysBefore(h), /*window_size_right=*/0);
  const at::Tensor& sums = std::get<1>(all);
  TORCH_CHECK(sums.numel() == lse.numel(), "logarithms of shape ", sums.sizes());
  PackedByHead(out, h).copy_(std::get<0>(all));
  lse.view({-1}).copy_(sums.reshape({-1}));
}

void RunPackedBackward(const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& lse,
                       const at::Tensor& out_gradient, const DocumentArrays& documents,
                       const AttentionHeads& h, at::Tensor& qkv_gradient) {
  const PackedHeads in(qkv, h), gradients(qkv_gradient, h);
  const at::Tensor seed = at::zeros({2}, qkv.options().dtype(at::kLong));  // of no dropout
  const auto result = at::_flash_attention_backward(
      PackedByHead(out_gradient, h), in.query, in.key, in.value, PackedByHead(out, h),
      lse.view({h.heads, qkv.size(0)}), documents.bounds, documents.bounds, documents.longest,
      documents.longest, /*dropout_p=*/0.0, /*is_causal=*/true, seed, seed, h.score_scale(),
      KeysBefore(h), /*window_size_right=*/0);
  gradients.query.copy_(std::get<0>(result));
  gradients.key.copy_(std::get<1>(result));
  gradients.value.copy_(std::get<2>(result));
}

void RunForward(AttentionBackend backend, const at::Tensor& qkv, const BatchShape& shape,
                const AttentionHeads& h, at::Tensor& out, at::Tensor& lse) {
  const Heads in(qkv, shape, h);
  at::Tensor result, sums;
  if (backend == AttentionBackend::kCudnn) {
    auto all = at::_scaled_dot_product_cudnn_attention(
        in.query, in.key, in.value, /*attn_bias=*/{}, /*compute_log_sumexp=*/true,
        /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false, h.score_scale());
    result = std::get<0>(all);
    sums = std::get<1>(all);
  } else {
    auto all =
        at::_scaled_dot_product_flash_attention(in.query, in.key, in.value,
                                                /*dropout_p=*/0.0, /*is_causal=*/true,
                                                /*return_debug_mask=*/false, h.score_scale());
    result = std::get<0>(all);
    sums = std::get<1>(all);
  }
  ByHead(out, shape, h).copy_(result);
  lse.copy_(sums.view_as(lse));
}

void RunBackward(AttentionBackend backend, const at::Tensor& qkv, const at::Tensor& out,
                 const at::Tensor& lse, const at::Tensor& out_gradient, const BatchShape& shape,
                 const AttentionHeads& h, at::Tensor& qkv_gradient) {
  const Heads in(qkv, shape, h), gradients(qkv_gradient, shape, h);
  const at::Tensor o = ByHead(out, shape, h), d = ByHead(out_gradient, shape, h);
  // The seed of a dropout that is not used, and lengths that rows of one length do not need.
  const at::Tensor seed = at::zeros({2}, qkv.options().dtype(at::kLong));
  const at::Tensor none;
  std::tuple<at::Tensor, at::Tensor, at::Tensor> result;
  if (backend == AttentionBackend::kCudnn) {
    result = at::_scaled_dot_product_cudnn_attention_backward(
        d, in.query, in.key, in.value, o, lse.unsqueeze(-1), seed, seed, /*attn_bias=*/none, none,
        none, shape.length, shape.length, /*dropout_p=*/0.0, /*is_causal=*/true, h.score_scale());
  } else {
    result = at::_scaled_dot_product_flash_attention_backward(
        d, in.query, in.key, in.value, o, lse, none, none, shape.length, shape.length,
        /*dropout_p=*/0.0, /*is_causal=*/true, seed, seed, h.score_scale());
  }
  gradients.query.copy_(std::get<0>(result));
  gradients.key.copy_(std::get<1>(result));
  gradients.value.copy_(std::get<2>(result));
}

// A small problem with shared key heads. Empty: right; else why not.
std::string TryOut(AttentionBackend backend, at::Device device, at::ScalarType type) {
  const bool packed = backend == AttentionBackend::kPackedFlash;
  const AttentionHeads h{.heads = 4, .kv_heads = 2, .head_dim = 64, .window = packed ? 50 : 0};
  BatchShape shape{.rows = 2, .length = 192};
  if (packed) shape.document_begins = {0, 1, 70, 192, 200};
  DeviceDocuments documents;
  const at::TensorOptions options = at::TensorOptions(device).dtype(type);
  const at::Tensor qkv = at::randn({shape.tokens(), h.joined_width()}, options);
  const at::Tensor out_gradient = at::randn({shape.tokens(), h.heads * h.head_dim}, options);
  at::Tensor out[2], gradient[2];
  try {
    for (const bool fused : {false, true}) {
      at::Tensor lse = at::zeros({shape.rows, h.heads, shape.length}, options.dtype(at::kFloat));
      out[fused] = at::zeros_like(out_gradient);
      gradient[fused] = at::zeros_like(qkv);
      if (fused && packed) {
        const DocumentArrays& arrays = documents.For(shape, device);
        RunPackedForward(qkv, arrays, h, out[1], lse);
        RunPackedBackward(qkv, out[1], lse, out_gradient, arrays, h, gradient[1]);
      } else if (fused) {
        RunForward(backend, qkv, shape, h, out[1], lse);
        RunBackward(backend, qkv, out[1], lse, out_gradient, shape, h, gradient[1]);
      } else {
        MathAttention(qkv, shape, h, out[0], lse);
        MathAttentionBackward(qkv, out[0], lse, out_gradient, shape, h, gradient[0]);
      }
    }
    const auto distance = [](const at::Tensor& a, const at::Tensor& b) {
      return ((a - b).to(at::kFloat).norm() / b.to(at::kFloat).norm()).item<double>();
    };
    // Not "greater": NaN is wrong as well.
    const bool right = distance(out[1], out[0]) < 0.02 && distance(gradient[1], gradient[0]) < 0.05;
    return right ? "" : "wrong results";
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return text.substr(0, text.find('\n'));
  }
}

}  // namespace

std::vector<AttentionBackend> AttentionCandidates(bool deterministic) {
  if (deterministic) return {AttentionBackend::kFlash, AttentionBackend::kPackedFlash};
  return {AttentionBackend::kCudnn, AttentionBackend::kFlash, AttentionBackend::kPackedFlash};
}

bool AttentionFits(AttentionBackend backend, at::ScalarType type, const BatchShape& shape,
                   const AttentionHeads& heads) {
  if (IsPacked(shape, heads) != (backend == AttentionBackend::kPackedFlash)) return false;
  if (heads.cap != 0) return false;
  const std::int64_t widest = backend == AttentionBackend::kCudnn ? 128 : 256;
  return (type == at::kBFloat16 || type == at::kHalf) && heads.head_dim % 8 == 0 &&
         heads.head_dim <= widest;
}

FusedAttention::FusedAttention(at::Device device, at::ScalarType type) {
  std::string unusable;
  for (const AttentionBackend backend :
       AttentionCandidates(at::globalContext().deterministicAlgorithms())) {
    const std::string reason = TryOut(backend, device, type);
    if (reason.empty()) {
      usable_.push_back(backend);
    } else {
      unusable += (unusable.empty() ? "" : "; ") + std::string(NameOf(backend)) + ": " + reason;
    }
  }
  description_ = usable_.empty() ? "plain" : NameOf(usable_.front());
  if (!unusable.empty()) description_ += " (" + unusable + ")";
}

const AttentionBackend* FusedAttention::Choose(at::ScalarType type, const BatchShape& shape,
                                               const AttentionHeads& heads) const {
  const auto found = std::find_if(usable_.begin(), usable_.end(), [&](AttentionBackend backend) {
    return AttentionFits(backend, type, shape, heads);
  });
  return found == usable_.end() ? nullptr : &*found;
}

bool FusedAttention::Forward(const at::Tensor& qkv, const BatchShape& shape,
                             const AttentionHeads& heads, at::Tensor& out, at::Tensor& lse) const {
  const AttentionBackend* const backend = Choose(qkv.scalar_type(), shape, heads);
  if (backend == nullptr) return false;
  if (*backend == AttentionBackend::kPackedFlash) {
    RunPackedForward(qkv, documents_.For(shape, qkv.device()), heads, out, lse);
  } else {
    RunForward(*backend, qkv, shape, heads, out, lse);
  }
  return true;
}

bool FusedAttention::Backward(const at::Tensor& qkv, const at::Tensor& out, const at::Tensor& lse,
                              const at::Tensor& out_gradient, const BatchShape& shape,
                              const AttentionHeads& heads, at::Tensor& qkv_gradient) const {
  const AttentionBackend* const backend = Choose(qkv.scalar_type(), shape, heads);
  if (backend == nullptr) return false;
  if (*backend == AttentionBackend::kPackedFlash) {
    RunPackedBackward(qkv, out, lse, out_gradient, documents_.For(shape, qkv.device()), heads,
                      qkv_gradient);
  } else {
    RunBackward(*backend, qkv, out, lse, out_gradient, shape, heads, qkv_gradient);
  }
  return true;
}

}  // namespace muster
