#include "trainer/ops/cuda/emulation.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "common/base/check.h"

namespace muster::cuda::emulation {

Index thread_index, block_index, block_size, grid_size;

namespace {

constexpr std::size_t kStackBytes = 64 * 1024;
constexpr std::size_t kWarp = 32;

enum class State { kRunnable, kAtWarpBarrier, kAtBlockBarrier, kEnded };

// Runs the body once for every block that its thread has a part in.
struct Fiber {
  std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  jmp_buf place;
  State state = State::kEnded;
};

std::vector<std::unique_ptr<Fiber>> fibers;
jmp_buf scheduler;
const std::function<void()>* body = nullptr;
std::vector<std::max_align_t> dynamic_shared;

// Jumps instead of swapcontext, which calls the kernel twice each time.
void Yield(State state) {
  Fiber& self = *fibers[thread_index.x];
  self.state = state;
  if (_setjmp(self.place) == 0) _longjmp(scheduler, 1);
}

void Live() {
  for (;;) {
    Yield(State::kEnded);
    (*body)();
  }
}

void AddFiber() {
  fibers.push_back(std::make_unique<Fiber>());
  thread_index.x = static_cast<unsigned>(fibers.size() - 1);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fibers.back()->stack.get();
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, &Live, 0);
  if (_setjmp(scheduler) == 0) setcontext(&context);
}

void Resume(Fiber& fiber) {
  if (_setjmp(scheduler) == 0) _longjmp(fiber.place, 1);
}

// Lets the threads [begin, end) go on if all of them are at `barrier` or have ended.
bool Release(std::size_t begin, std::size_t end, State barrier) {
  bool waiting = false;
  for (std::size_t i = begin; i < end; ++i) {
    if (fibers[i]->state == barrier) waiting = true;
    if (fibers[i]->state != barrier && fibers[i]->state != State::kEnded) return false;
  }
  for (std::size_t i = begin; i < end; ++i) {
    if (fibers[i]->state == barrier) fibers[i]->state = State::kRunnable;
  }
  return waiting;
}

void RunBlock(unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) fibers[i]->state = State::kRunnable;
  for (;;) {
    for (thread_index.x = 0; thread_index.x < threads; ++thread_index.x) {
      Fiber& fiber = *fibers[thread_index.x];
      if (fiber.state == State::kRunnable) Resume(fiber);
    }
    bool released = false;
    for (std::size_t warp = 0; warp < threads; warp += kWarp) {
      const std::size_t end = std::min<std::size_t>(warp + kWarp, threads);
      released |= Release(warp, end, State::kAtWarpBarrier);
    }
    released |= Release(0, threads, State::kAtBlockBarrier);
    if (released) continue;
    for (unsigned i = 0; i < threads; ++i) {
      MUSTER_CHECK(fibers[i]->state == State::kEnded, "threads of a block wait at two barriers");
    }
    return;
  }
}

}  // namespace

void Run(unsigned blocks, unsigned threads, std::size_t shared_bytes,
         const std::function<void()>& thread) {
  while (fibers.size() < threads) AddFiber();
  dynamic_shared.assign(shared_bytes / sizeof(std::max_align_t) + 1, {});
  body = &thread;
  block_size.x = threads;
  grid_size.x = blocks;
  for (block_index.x = 0; block_index.x < blocks; ++block_index.x) RunBlock(threads);
}

void BlockBarrier() { Yield(State::kAtBlockBarrier); }

void WarpBarrier() { Yield(State::kAtWarpBarrier); }

void* DynamicShared() { return dynamic_shared.data(); }

}  // namespace muster::cuda::emulation
