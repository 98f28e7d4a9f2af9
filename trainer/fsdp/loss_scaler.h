// LossScaler: the factor that keeps small fp16 gradients from vanishing.
//
// Doubled after a run of finite steps, halved when a gradient overflows; that step is then left
// out (Micikevicius et al., arXiv 1710.03740; the constants are torch.amp.GradScaler's). Every rank
// sees the same reduced gradients, so all ranks hold the same factor.
//
// Plain value; one thread.
#pragma once

#include <cstdint>

namespace muster {

class LossScaler {
 public:
  // Inactive: the factor is one for ever.
  explicit LossScaler(bool active) : scale_(active ? kFirst : 1), active_(active) {}

  double scale() const { return scale_; }
  std::int64_t finite_steps() const { return finite_steps_; }
  // Where a resumed run goes on.
  void Restore(double scale, std::int64_t finite_steps) {
    if (!active_ || scale <= 0) return;
    scale_ = scale;
    finite_steps_ = finite_steps;
  }

  // After a step's gradients were reduced. True: they overflowed, and a smaller factor may help.
  bool Overflowed(bool finite) {
    if (!active_) return false;
    if (finite) {
      if (++finite_steps_ % kGrowthInterval == 0 && scale_ < kLargest) scale_ *= 2;
      return false;
    }
    if (scale_ <= 1) return false;
    scale_ /= 2;
    finite_steps_ = 0;
    return true;
  }

 private:
  static constexpr double kFirst = 65536;
  static constexpr double kLargest = 0x1p60;
  static constexpr std::int64_t kGrowthInterval = 2000;

  double scale_;
  std::int64_t finite_steps_ = 0;
  bool active_;
};

}  // namespace muster
