// Makes the AttentionKernels of one arithmetic. Internal to attention*.cc.
#pragma once

#include "trainer/ops/cpu/attention_backward.h"
#include "trainer/ops/cpu/attention_forward.h"

namespace muster::attention {

template <typename Half, typename Arrays>
std::size_t ScratchBytes(const AttentionShape& shape) {
  const Arrays none;
  Arena arena(nullptr);
  Half half(shape, none, arena);
  return arena.used();
}

template <typename Half, typename Arrays, typename Session>
void RunTasks(const AttentionShape& shape, const Arrays& arrays, std::int64_t begin,
              std::int64_t end, std::byte* scratch) {
  [[maybe_unused]] const Session session;
  Arena arena(scratch);
  Half half(shape, arrays, arena);
  for (std::int64_t task = begin; task < end; ++task) half.Run(task);
}

template <typename Arithmetic>
constexpr AttentionKernels<typename Arithmetic::Element> MakeKernels() {
  using Element = typename Arithmetic::Element;
  using Session = typename Arithmetic::Session;
  using ForwardArrays = AttentionForwardArrays<Element>;
  using BackwardArrays = AttentionBackwardArrays<Element>;
  return {.forward_scratch = ScratchBytes<Forward<Arithmetic>, ForwardArrays>,
          .backward_scratch = ScratchBytes<Backward<Arithmetic>, BackwardArrays>,
          .forward = RunTasks<Forward<Arithmetic>, ForwardArrays, Session>,
          .backward = RunTasks<Backward<Arithmetic>, BackwardArrays, Session>};
}

}  // namespace muster::attention
