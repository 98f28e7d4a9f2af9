// Cross entropy with its gradient in place, and the gradient of the embedding table.
#include "trainer/ops/cuda/kernels/tools.cuh"

namespace muster::cuda {
namespace {

constexpr unsigned kThreads = 512;

template <typename Real>
__device__ __forceinline__ Real Infinity() {
  return static_cast<Real>(HUGE_VAL);
}

template <typename T>
struct LossRows {
  std::int64_t width;
  const std::int64_t* labels;
  Wide<T> scale;
  T* logits;
  double* losses;
};

// The largest logit so far and the sum of exponentials relative to it.
template <typename Real>
struct Softmax {
  Real maximum = -Infinity<Real>();
  Real sum = 0;
};

template <typename T, int N>
__device__ Softmax<Wide<T>> ReadLogits(const T* logits, std::int64_t width) {
  using Real = Wide<T>;
  Softmax<Real> own;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  for (std::int64_t column = threadIdx.x * N; column < width; column += step) {
    const Pack<T, N> pack = ReadPack<N>(logits + column);
    Real largest = own.maximum;
    for (int k = 0; k < N; ++k) largest = Larger()(largest, Read(pack.at[k]));
    // Nothing but minus infinity so far: the difference of infinities would be NaN.
    if (largest > own.maximum) own.sum *= Exp(own.maximum - largest);
    own.maximum = largest;
    if (largest == -Infinity<Real>()) largest = 0;
    for (int k = 0; k < N; ++k) own.sum += Exp(Read(pack.at[k]) - largest);
  }
  Softmax<Real> all;
  all.maximum = OverBlock(own.maximum, -Infinity<Real>(), Larger());
  const Real behind = own.maximum == all.maximum ? Real(1) : Exp(own.maximum - all.maximum);
  all.sum = BlockSum(own.sum * behind);
  return all;
}

// A block has a row: read once for the softmax, once more to write the gradient.
template <typename T, int N>
__global__ void CrossEntropyKernel(LossRows<T> l) {
  using Real = Wide<T>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t label = l.labels[row];
  T* const logits = l.logits + row * l.width;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * N;
  const bool counts = label >= 0;
  const bool known = label < l.width;
  Softmax<Real> softmax;
  Real at_label = 0;
  if (counts) {
    softmax = ReadLogits<T, N>(logits, l.width);
    at_label = known ? Read(logits[label]) : Infinity<Real>() - Infinity<Real>();
    __syncthreads();  // the label's logit is read before its gradient is written
  }
  if (threadIdx.x == 0) {
    l.losses[row] = counts ? log(static_cast<double>(softmax.sum)) -
                                 (static_cast<double>(at_label) - softmax.maximum)
                           : 0;
  }
  const Real factor = counts ? l.scale / softmax.sum : Real(0);
  for (std::int64_t column = threadIdx.x * N; column < l.width; column += step) {
    Pack<T, N> pack = ReadPack<N>(logits + column);
    for (int k = 0; k < N; ++k) {
      Real gradient = 0;
      if (counts) {
        gradient = Exp(Read(pack.at[k]) - softmax.maximum) * factor;
        if (column + k == label) gradient -= l.scale;
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

template <typename T, typename Out>
struct TableRows {
  std::int64_t rows;
  std::int64_t width;
  std::int64_t column_blocks;
  std::int64_t vocabulary;
  const std::int64_t* words;
  const std::int64_t* places;
  const T* gradient;
  Out* table;
  bool add;
};

// Blocks of the first place of a word add up all of its places; the others have nothing to do.
template <typename T, typename Out>
__global__ void EmbeddingKernel(TableRows<T, Out> e) {
  using Real = Wide<T>;
  const std::int64_t first = blockIdx.x / e.column_blocks;
  const std::int64_t column =
      blockIdx.x % e.column_blocks * blockDim.x + static_cast<std::int64_t>(threadIdx.x);
  const std::int64_t word = e.words[first];
  if (first > 0 && e.words[first - 1] == word) return;
  if (word < 0 || word >= e.vocabulary || column >= e.width) return;
  Real sum = 0;
  for (std::int64_t i = first; i < e.rows && e.words[i] == word; ++i) {
    sum += Read(e.gradient[e.places[i] * e.width + column]);
  }
  Out* const to = e.table + word * e.width + column;
  if (e.add) sum += Read(*to);
  Write(to, static_cast<Wide<Out>>(sum));
}

template <typename Out>
__global__ void ClearKernel(Out* values, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < count; i += step) Write(&values[i], Wide<Out>(0));
}

}  // namespace

CudaResult CrossEntropy(const Loss& loss, CudaStream stream) {
  const CudaResult result = WithElement(loss.type, [&]<typename T>(T*) {
    const LossRows<T> rows{loss.width, loss.labels, static_cast<Wide<T>>(loss.scale),
                           static_cast<T*>(loss.logits), loss.row_losses};
    const auto blocks = static_cast<unsigned>(loss.rows);
    if (loss.width % kPack<T> == 0 && Aligned(loss.logits)) {
      return Launch(CrossEntropyKernel<T, kPack<T>>, blocks, kThreads, 0, stream, rows);
    }
    return Launch(CrossEntropyKernel<T, 1>, blocks, kThreads, 0, stream, rows);
  });
  if (result != CudaResult::kSuccess) return result;
  return Launch(AddUpKernel, 1, kThreads, 0, stream, loss.row_losses, loss.rows, loss.loss);
}

CudaResult EmbeddingBackward(const Embedding& e, CudaStream stream) {
  constexpr unsigned kColumns = 128;
  return WithElement(e.table_type, [&]<typename Out>(Out*) {
    Out* const table = static_cast<Out*>(e.table);
    const std::int64_t elements = e.vocabulary * e.width;
    if (!e.add) {
      const unsigned blocks = elements < 4096 * 512 ? BlocksFor(elements, 512) : 4096;
      const CudaResult result = Launch(ClearKernel<Out>, blocks, 512, 0, stream, table, elements);
      if (result != CudaResult::kSuccess) return result;
    }
    return WithElement(e.type, [&]<typename T>(T*) {
      const std::int64_t column_blocks = BlocksFor(e.width, kColumns);
      const TableRows<T, Out> rows{e.rows,
                                   e.width,
                                   column_blocks,
                                   e.vocabulary,
                                   e.words,
                                   e.places,
                                   static_cast<const T*>(e.gradient),
                                   table,
                                   e.add};
      return Launch(EmbeddingKernel<T, Out>, static_cast<unsigned>(e.rows * column_blocks),
                    kColumns, 0, stream, rows);
    });
  });
}

}  // namespace muster::cuda
