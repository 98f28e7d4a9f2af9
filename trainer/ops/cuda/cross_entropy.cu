// Cross entropy with its gradient in place: a block has a row.
#include "trainer/ops/cross_entropy.h"

#include "trainer/ops/cuda/kernel.cuh"

namespace muster::cuda {
inline namespace cross_entropy_kernels {

constexpr unsigned kThreads = 512;

template <typename Real>
__device__ __forceinline__ Real Infinity() {
  return static_cast<Real>(HUGE_VAL);
}

// A logit under its cap; 0: it has none.
template <typename Real>
__device__ __forceinline__ Real Capped(Real logit, Real cap) {
  return cap != 0 ? cap * Tanh(logit / cap) : logit;
}

// The largest logit so far and the sum of exponentials relative to it.
template <typename Real>
struct Softmax {
  Real maximum = -Infinity<Real>();
  Real sum = 0;
};

template <typename T, int N>
__device__ Softmax<Wide<T>> ReadLogits(const T* logits, std::int64_t width, Wide<T> cap) {
  using Real = Wide<T>;
  Softmax<Real> own;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  for (std::int64_t column = threadIdx.x * N; column < width; column += step) {
    const Pack<T, N> pack = ReadPack<N>(logits + column);
    Real largest = own.maximum;
    for (int k = 0; k < N; ++k) largest = Larger()(largest, Capped(Read(pack.at[k]), cap));
    // Nothing but minus infinity so far: the difference of infinities would be NaN.
    if (largest > own.maximum) own.sum *= Exp(own.maximum - largest);
    own.maximum = largest;
    if (largest == -Infinity<Real>()) largest = 0;
    for (int k = 0; k < N; ++k) own.sum += Exp(Capped(Read(pack.at[k]), cap) - largest);
  }
  Softmax<Real> all;
  all.maximum = OverBlock(own.maximum, -Infinity<Real>(), Larger());
  const Real behind = own.maximum == all.maximum ? Real(1) : Exp(own.maximum - all.maximum);
  all.sum = BlockSum(own.sum * behind);
  return all;
}

// A block has a row: read once for the softmax, once more to write the gradient.
template <typename T, int N>
__global__ void CrossEntropyKernel(op::CrossEntropy c, double* losses) {
  using Real = Wide<T>;
  const std::int64_t width = c.logits.width(), row = blockIdx.x;
  const std::int64_t label = c.labels.data<std::int64_t>()[row];
  T* const logits = c.logits.data<T>() + row * width;
  const Real wanted = static_cast<Real>(c.scale), cap = static_cast<Real>(c.cap);
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  const bool counts = label >= 0;
  const bool known = label < width;
  Softmax<Real> softmax;
  Real at_label = 0;
  if (counts) {
    softmax = ReadLogits<T, N>(logits, width, cap);
    at_label = known ? Capped(Read(logits[label]), cap) : Infinity<Real>() - Infinity<Real>();
    __syncthreads();  // the label's logit is read before its gradient is written
  }
  if (threadIdx.x == 0) {
    losses[row] = counts ? log(static_cast<double>(softmax.sum)) -
                               (static_cast<double>(at_label) - softmax.maximum)
                         : 0;
  }
  const Real factor = counts ? wanted / softmax.sum : Real(0);
  for (std::int64_t column = threadIdx.x * N; column < width; column += step) {
    Pack<T, N> pack = ReadPack<N>(logits + column);
    for (int k = 0; k < N; ++k) {
      Real gradient = 0;
      if (counts) {
        const Real logit = Capped(Read(pack.at[k]), cap);
        gradient = Exp(logit - softmax.maximum) * factor;
        if (column + k == label) gradient -= wanted;
        if (cap != 0) gradient *= Real(1) - logit / cap * (logit / cap);
        if (!known) gradient = at_label;
      }
      Write(&pack.at[k], gradient);
    }
    WritePack(logits + column, pack);
  }
}

// One block, so that the order is fixed.
__global__ void AddUpKernel(const double* values, std::int64_t count, double* sum) {
  double own = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) own += values[i];
  const double all = BlockSum(own);
  if (threadIdx.x == 0) *sum += all;
}

}  // namespace cross_entropy_kernels

CudaResult RunOnCuda(const op::CrossEntropy& c, KernelScope& scope) {
  const std::int64_t count = c.logits.rows();
  double* const losses = scope.Scratch<double>(count);
  const CudaResult result = WithElement(c.logits.type(), [&]<typename T>(T*) {
    const bool packs = c.logits.width() % kPack<T> == 0 && Aligned(c.logits.data());
    return Launch(packs ? CrossEntropyKernel<T, kPack<T>> : CrossEntropyKernel<T, 1>,
                  static_cast<unsigned>(count), kThreads, 0, scope.stream(), c, losses);
  });
  if (result != CudaResult::kSuccess) return result;
  return Launch(AddUpKernel, 1, kThreads, 0, scope.stream(), losses, count, c.loss.data<double>());
}

template CudaResult CudaKernel<op::CrossEntropy>(const void*, KernelScope&);

}  // namespace muster::cuda
