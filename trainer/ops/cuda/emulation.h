// Blocks and threads of a GPU on the host, for tests: a kernel runs block by block, every thread of
// a block as a fiber that goes on until the next barrier.
//
// One thread of the host at a time. Only what our kernels use is here; shared memory is static.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __restrict__ __restrict

namespace muster::cuda::emulation {

struct Index {
  unsigned x = 0;
};

extern Index thread_index, block_index, block_size, grid_size;

// Runs `thread` once for every thread of every block.
void Run(unsigned blocks, unsigned threads, std::size_t shared_bytes,
         const std::function<void()>& thread);
// Until every thread of the block, or of the warp, is here or has ended. A block whose threads wait
// at different barriers would hang on a GPU: here it aborts the process.
void BlockBarrier();
void WarpBarrier();
void* DynamicShared();

// The value that the thread `mask` away in the warp has brought.
template <typename Value>
Value ShuffleXor(Value value, int mask) {
  static Value brought[1024];
  brought[thread_index.x] = value;
  WarpBarrier();
  const Value other = brought[thread_index.x ^ static_cast<unsigned>(mask)];
  WarpBarrier();
  return other;
}

}  // namespace muster::cuda::emulation

#define threadIdx ::muster::cuda::emulation::thread_index
#define blockIdx ::muster::cuda::emulation::block_index
#define blockDim ::muster::cuda::emulation::block_size
#define gridDim ::muster::cuda::emulation::grid_size
#define __syncthreads() ::muster::cuda::emulation::BlockBarrier()
#define __shfl_xor_sync(lanes, value, mask) ::muster::cuda::emulation::ShuffleXor(value, mask)
