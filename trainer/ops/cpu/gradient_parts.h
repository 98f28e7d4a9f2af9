// RowRuns, GradientParts: the gradient of a norm's weight, added up by several threads.
//
// Rows are cut into runs, and each run adds to a part of its own. The cut depends on the number of
// rows alone, so the order of additions does too. The trainer's thread; no Torch.
#pragma once

#include <cstddef>
#include <vector>

#include "trainer/core/convert.h"
#include "trainer/ops/cpu/kernel.h"

namespace muster {

class RowRuns {
 public:
  explicit RowRuns(std::int64_t rows)
      : rows_(rows),
        length_(std::max<std::int64_t>(16, (rows + kMost - 1) / kMost)),
        count_((rows + length_ - 1) / length_) {}

  std::int64_t count() const { return count_; }

  // Calls f(run, begin, end) for the rows of each run.
  template <typename F>
  void Over(std::int64_t width, const F& f) const {
    OverRows(count_, length_ * width, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t run = first; run < last; ++run) {
        f(run, run * length_, std::min(rows_, (run + 1) * length_));
      }
    });
  }

 private:
  // Few enough to stay small, enough for many threads.
  static constexpr std::int64_t kMost = 64;

  std::int64_t rows_, length_, count_;
};

class GradientParts {
 public:
  // Parts [width] of type `wide`, zero; none where the weight is frozen.
  GradientParts(const RowRuns& runs, const GradientArray& target, ElementType wide)
      : target_(target),
        wide_(wide),
        count_(std::max<std::int64_t>(1, runs.count())),
        bytes_(target.array.defined() ? static_cast<std::size_t>(count_) * RowBytes() : 0) {}

  // Null where there is none.
  void* Of(std::int64_t run) {
    return bytes_.empty() ? nullptr : bytes_.data() + static_cast<std::size_t>(run) * RowBytes();
  }

  // Adds the parts up, in order, to the target.
  void Join() {
    if (bytes_.empty()) return;
    const std::int64_t width = target_.array.count();
    for (std::int64_t run = 1; run < count_; ++run) {
      muster::Convert(Of(run), wide_, Of(0), wide_, width, true);
    }
    muster::Convert(Of(0), wide_, target_.array.data(), target_.array.type(), width, target_.add);
  }

 private:
  std::size_t RowBytes() const {
    return static_cast<std::size_t>(target_.array.count()) * ElementSize(wide_);
  }

  const GradientArray target_;
  const ElementType wide_;
  const std::int64_t count_;
  std::vector<std::byte> bytes_;
};

}  // namespace muster
