#include "trainer/model/products.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/ops/cpu/cpu_features.h"

// MKL's, which LibTorch brings along without its headers; builds for other processors than x86-64
// have none. `a`, `b`: bit patterns of 16 bits.
extern "C" {
using Gemm = void(int layout, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                  const void* a, int row_of_a, const void* b, int row_of_b, float beta, float* c,
                  int row_of_c);
Gemm cblas_gemm_bf16bf16f32 __attribute__((weak));
Gemm cblas_gemm_f16f16f32 __attribute__((weak));
}

namespace muster {
namespace {

// CBLAS's.
constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;

// What is held in fp32 at a time, of a factor or of the product: 4 MiB or one row, which `plan`
// need not count.
constexpr std::int64_t kTileElements = std::int64_t{1} << 20;

bool WidensFactors(const at::Tensor& factor) {
  if (!factor.device().is_cpu()) return false;
  const auto type = factor.scalar_type();
  return (type == at::kBFloat16 && !ThisCpu().avx512_bf16) ||
         (type == at::kHalf && !ThisCpu().avx512_fp16);
}

at::Tensor Widened(const at::Tensor& factor) { return factor.to(at::kFloat); }

// Calls `multiply(row, rows, column, columns, a, b)` for the tiles of a product of a [N, K] and
// b [K, M], with their rows of a and columns of b in fp32. K is never cut, so that each value is
// rounded once.
template <typename Multiply>
void ForEachTile(const at::Tensor& a, const at::Tensor& b, Multiply multiply) {
  const std::int64_t rows = a.size(0), columns = b.size(1);
  const std::int64_t depth = std::max<std::int64_t>(a.size(1), 1024);
  const std::int64_t high = std::max<std::int64_t>(kTileElements / depth, 1);
  for (std::int64_t column = 0; column < columns; column += high) {
    const std::int64_t wide = std::min(high, columns - column);
    const at::Tensor b_tile = Widened(b.narrow(1, column, wide));
    for (std::int64_t row = 0; row < rows; row += high) {
      const std::int64_t some = std::min(high, rows - row);
      multiply(row, some, column, wide, Widened(a.narrow(0, row, some)), b_tile);
    }
  }
}

// out += alpha a^T b by tiles whose sums are fp32 all along, so that these may be cut as well.
// MKL's product would keep the widened factors of the largest one.
void AddWidenedTiles(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double alpha) {
  static constexpr std::int64_t kSide = 1024;
  static_assert(kSide * kSide == kTileElements);
  const auto tile = [](const at::Tensor& of, std::int64_t row, std::int64_t column) {
    return of.narrow(0, row, std::min(kSide, of.size(0) - row))
        .narrow(1, column, std::min(kSide, of.size(1) - column));
  };
  for (std::int64_t k = 0; k < a.size(0); k += kSide) {
    for (std::int64_t column = 0; column < b.size(1); column += kSide) {
      const at::Tensor b_tile = Widened(tile(b, k, column));
      for (std::int64_t row = 0; row < a.size(1); row += kSide)
        tile(out, row, column).addmm_(Widened(tile(a, k, row)).t(), b_tile, 1, alpha);
    }
  }
}

}  // namespace

void MultiplyInto(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (!WidensFactors(a)) {
    at::mm_out(out, a, b);
    return;
  }
  ForEachTile(
      a, b,
      [&](auto row, auto rows, auto column, auto columns, const auto& a_tile, const auto& b_tile) {
        out.narrow(0, row, rows).narrow(1, column, columns).copy_(at::mm(a_tile, b_tile));
      });
}

void MultiplyAddInto(at::Tensor& out, const at::Tensor& base, const at::Tensor& a,
                     const at::Tensor& b, double beta, double alpha) {
  if (!WidensFactors(a)) {
    at::addmm_out(out, base, a, b, beta, alpha);
    return;
  }
  ForEachTile(
      a, b,
      [&](auto row, auto rows, auto column, auto columns, const auto& a_tile, const auto& b_tile) {
        at::Tensor base_tile = base.narrow(-1, column, columns);
        if (base.dim() == 2) base_tile = base_tile.narrow(0, row, rows);
        out.narrow(0, row, rows)
            .narrow(1, column, columns)
            .copy_(at::addmm(Widened(base_tile), a_tile, b_tile, beta, alpha));
      });
}

void AddWideProduct(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double alpha) {
  if (!a.device().is_cpu()) {
    at::addmm_out(out, out, a.t(), b, at::kFloat, 1, alpha);
    return;
  }
  if (WidensFactors(a)) return AddWidenedTiles(out, a, b, alpha);
  const auto row = [](const at::Tensor& matrix) {
    TORCH_CHECK(matrix.stride(1) == 1 || matrix.size(1) == 1, "rows that are not contiguous");
    return static_cast<int>(std::max(matrix.stride(0), matrix.size(1)));
  };
  Gemm* const gemm = a.scalar_type() == at::kHalf ? cblas_gemm_f16f16f32 : cblas_gemm_bf16bf16f32;
  if (gemm == nullptr) return AddWidenedTiles(out, a, b, alpha);
  gemm(kRowMajor, kTransposed, kPlain, static_cast<int>(a.size(1)), static_cast<int>(b.size(1)),
       static_cast<int>(a.size(0)), static_cast<float>(alpha), a.const_data_ptr(), row(a),
       b.const_data_ptr(), row(b), 1, out.mutable_data_ptr<float>(), row(out));
}

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!WidensFactors(x)) {
    return at::linear(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
  }
  std::vector<std::int64_t> sizes = x.sizes().vec();
  const at::Tensor rows = x.reshape({-1, sizes.back()});
  sizes.back() = weight.size(0);
  at::Tensor y = at::empty({rows.size(0), weight.size(0)}, x.options());
  if (bias.defined()) {
    MultiplyAddInto(y, bias, rows, weight.t());
  } else {
    MultiplyInto(y, rows, weight.t());
  }
  return y.view(sizes);
}

}  // namespace muster
