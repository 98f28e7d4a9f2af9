// AdamW over flat fp32 arrays: one pass updates the weight and both moments, applies the clip
// factor, and writes the bf16 shadow that the next gathers read.
//
// The arithmetic is torch.optim.AdamW's (decoupled weight decay on every element). Results depend
// on the element alone, so any cut into ranges gives the same bits.
//
// Pure loops over the caller's memory; any thread.
#pragma once

#include <cstdint>

namespace muster {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

struct AdamWArrays {
  float* weight = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const float* gradient = nullptr;
  std::uint16_t* shadow = nullptr;  // bf16 copy of the weight; null: none is kept
};

struct AdamWStep {
  std::int64_t number = 1;  // of the step, counted from 1: bias correction
  double lr = 0;
  double gradient_scale = 1;  // the clip factor
};

// Elements [begin, end) of the arrays.
void AdamWUpdate(const AdamWArrays& arrays, std::int64_t begin, std::int64_t end,
                 const AdamWOptions& options, const AdamWStep& step);

// To nearest, ties to even; NaN stays NaN.
void RoundToBFloat16(const float* from, std::uint16_t* to, std::int64_t count);

// Added up in blocks of a fixed size, in order: the bits do not depend on the number of threads.
double SumOfSquares(const float* values, std::int64_t count);

}  // namespace muster
