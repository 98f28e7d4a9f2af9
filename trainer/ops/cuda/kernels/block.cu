// Rotary embedding and gated activation: a thread has a pack of elements.
#include "trainer/ops/cuda/kernels/tools.cuh"

namespace muster::cuda {
namespace {

constexpr unsigned kThreads = 256;

template <typename T>
struct Turn {
  std::int64_t packs;  // in all
  std::int64_t heads;
  std::int64_t half;
  std::int64_t stride;
  std::int64_t length;
  const std::int32_t* positions;  // null: the row modulo length
  T* qkv;
  const Wide<T>* cos;
  const Wide<T>* sin;
  Wide<T> direction;
};

template <typename T, int N>
__global__ void RopeKernel(Turn<T> t) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= t.packs) return;
  const std::int64_t per_head = t.half / N;
  const std::int64_t i = index % per_head * N;
  const std::int64_t head = index / per_head % t.heads;
  const std::int64_t row = index / per_head / t.heads;
  T* const left = t.qkv + row * t.stride + head * 2 * t.half + i;
  T* const right = left + t.half;
  const std::int64_t position = t.positions == nullptr ? row % t.length : t.positions[row];
  const std::int64_t angle = position * t.half + i;
  Pack<T, N> a = ReadPack<N>(left);
  Pack<T, N> b = ReadPack<N>(right);
  for (int k = 0; k < N; ++k) {
    const Wide<T> x = Read(a.at[k]);
    const Wide<T> y = Read(b.at[k]);
    const Wide<T> cos = t.cos[angle + k];
    const Wide<T> sin = t.sin[angle + k] * t.direction;
    Write(&a.at[k], x * cos - y * sin);
    Write(&b.at[k], y * cos + x * sin);
  }
  WritePack(left, a);
  WritePack(right, b);
}

template <typename T>
struct Activation {
  std::int64_t packs;  // of `out`
  std::int64_t width;
  T* gate_up;
  const T* out_gradient;
  T* out;
};

template <typename Real>
__device__ __forceinline__ Real Sigmoid(Real x) {
  return Real(1) / (Real(1) + Exp(-x));
}

template <typename T, int N>
__global__ void SwiGluKernel(Activation<T> g) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= g.packs) return;
  const std::int64_t row = index * N / g.width;
  const T* const from = g.gate_up + row * g.width + index * N;  // row * 2 * width + column
  const Pack<T, N> gate = ReadPack<N>(from);
  const Pack<T, N> up = ReadPack<N>(from + g.width);
  Pack<T, N> out;
  for (int k = 0; k < N; ++k) {
    const Wide<T> x = Read(gate.at[k]);
    Write(&out.at[k], x * Sigmoid(x) * Read(up.at[k]));
  }
  WritePack(g.out + index * N, out);
}

template <typename T, int N>
__global__ void SwiGluBackwardKernel(Activation<T> g) {
  using Real = Wide<T>;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= g.packs) return;
  const std::int64_t row = index * N / g.width;
  T* const at = g.gate_up + row * g.width + index * N;
  Pack<T, N> gate = ReadPack<N>(at);
  Pack<T, N> up = ReadPack<N>(at + g.width);
  const Pack<T, N> gradient = ReadPack<N>(g.out_gradient + index * N);
  Pack<T, N> out;
  for (int k = 0; k < N; ++k) {
    const Real x = Read(gate.at[k]);
    const Real y = Read(up.at[k]);
    const Real d = Read(gradient.at[k]);
    const Real sigmoid = Sigmoid(x);
    const Real silu = x * sigmoid;
    Write(&out.at[k], silu * y);
    Write(&up.at[k], d * silu);
    Write(&gate.at[k], d * y * (sigmoid + silu * (Real(1) - sigmoid)));
  }
  WritePack(g.out + index * N, out);
  WritePack(at, gate);
  WritePack(at + g.width, up);
}

template <typename T, int N>
CudaResult LaunchRotate(const Rotation& r, CudaStream stream) {
  const std::int64_t half = r.head_dim / 2;
  const Turn<T> turn{r.rows * r.heads * (half / N),
                     r.heads,
                     half,
                     r.stride,
                     r.length,
                     r.positions,
                     static_cast<T*>(r.qkv),
                     static_cast<const Wide<T>*>(r.cos),
                     static_cast<const Wide<T>*>(r.sin),
                     static_cast<Wide<T>>(r.direction)};
  return Launch(RopeKernel<T, N>, BlocksFor(turn.packs, kThreads), kThreads, 0, stream, turn);
}

// The two kernels of the activation differ in nothing else.
template <typename T>
CudaResult LaunchGate(const Gate& g, void (*packed)(Activation<T>), void (*single)(Activation<T>),
                      CudaStream stream) {
  const bool packs = g.width % kPack<T> == 0 && Aligned(g.gate_up, g.out_gradient, g.out);
  const Activation<T> arguments{g.rows * g.width / (packs ? kPack<T> : 1), g.width,
                                static_cast<T*>(g.gate_up), static_cast<const T*>(g.out_gradient),
                                static_cast<T*>(g.out)};
  return Launch(packs ? packed : single, BlocksFor(arguments.packs, kThreads), kThreads, 0, stream,
                arguments);
}

}  // namespace

CudaResult ApplyRope(const Rotation& r, CudaStream stream) {
  return WithElement(r.type, [&]<typename T>(T*) {
    const bool packs = r.head_dim / 2 % kPack<T> == 0 && r.stride % kPack<T> == 0 && Aligned(r.qkv);
    return packs ? LaunchRotate<T, kPack<T>>(r, stream) : LaunchRotate<T, 1>(r, stream);
  });
}

CudaResult SwiGlu(const Gate& g, CudaStream stream) {
  return WithElement(g.type, [&]<typename T>(T*) {
    return LaunchGate<T>(g, SwiGluKernel<T, kPack<T>>, SwiGluKernel<T, 1>, stream);
  });
}

CudaResult SwiGluBackward(const Gate& g, CudaStream stream) {
  return WithElement(g.type, [&]<typename T>(T*) {
    return LaunchGate<T>(g, SwiGluBackwardKernel<T, kPack<T>>, SwiGluBackwardKernel<T, 1>, stream);
  });
}

}  // namespace muster::cuda
