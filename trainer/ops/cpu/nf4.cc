#include "trainer/ops/cpu/nf4.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "trainer/ops/cpu/cpu_features.h"
#include "trainer/ops/cpu/kernel.h"
#include "trainer/ops/cpu/nf4_forms.h"

namespace muster {
namespace {

struct Portable {
  static MUSTER_INLINE void Levels(const std::uint8_t* codes, float* levels) {
    for (std::int64_t i = 0; i < kNf4Block; ++i) levels[i] = nf4::LevelAt(codes, i);
  }
};

constexpr int kLevels = 16;
constexpr std::uint8_t kCodeOfZero = 7;
// What a block's largest magnitude counts as at least.
constexpr float kLeast = 1e-38f;

// Halfway between neighbouring levels.
constexpr std::array<float, kLevels - 1> kBounds = [] {
  std::array<float, kLevels - 1> bounds{};
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    bounds[i] = (kNf4Levels[i] + kNf4Levels[i + 1]) / 2;
  }
  return bounds;
}();

// As integers, of which NaN's are the largest.
MUSTER_INLINE float LargestMagnitude(const float* values, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return std::bit_cast<float>(largest);
}

MUSTER_INLINE float AtLeast(float value) { return value < kLeast ? kLeast : value; }

// The codes of values over their block's largest magnitude, in pairs.
MUSTER_INLINE void Encode(const float* scaled, std::uint8_t* codes) {
  std::uint32_t above[kNf4Block] = {};  // bounds that the value is above; of NaN all
  for (const float bound : kBounds) {
    for (int i = 0; i < kNf4Block; ++i) above[i] += scaled[i] <= bound ? 0u : 1u;
  }
  for (int i = 0; i < kNf4Block; i += 2) {
    codes[i / 2] = static_cast<std::uint8_t>(above[i] << 4 | above[i + 1]);
  }
}

MUSTER_VECTOR_CLONES
void QuantizeWhole(const Nf4Quantization& t, std::int64_t begin, std::int64_t end) {
  alignas(64) float scaled[kNf4Block];
  for (std::int64_t block = begin; block < end; ++block) {
    const float* values = t.values + block * kNf4Block;
    t.absmax[block] = LargestMagnitude(values, kNf4Block);
    const float factor = 1.0f / AtLeast(t.absmax[block]);
    for (int i = 0; i < kNf4Block; ++i) scaled[i] = values[i] * factor;
    Encode(scaled, t.codes + block * (kNf4Block / 2));
  }
}

void QuantizeRest(const Nf4Quantization& t, std::int64_t block) {
  const std::int64_t first = block * kNf4Block, count = t.count - first;
  const float absmax = AtLeast(LargestMagnitude(t.values + first, count));
  float scaled[kNf4Block] = {};
  for (std::int64_t i = 0; i < count; ++i) scaled[i] = t.values[first + i] / absmax;
  std::uint8_t codes[kNf4Block / 2];
  Encode(scaled, codes);
  static_assert(kNf4Levels[kCodeOfZero] == 0);  // what is beside a last code without a partner
  std::copy_n(codes, Nf4Bytes(count), t.codes + first / 2);
  t.absmax[block] = absmax;
}

constexpr std::int64_t kGridSteps = 65536;

// The code for every place of the grid from -1 to 1.
const std::array<std::uint8_t, kGridSteps>& CodesOnGrid() {
  static const std::array<std::uint8_t, kGridSteps> codes = [] {
    const std::array<float, 256>& book = Nf4NestedCode();
    std::array<std::uint8_t, kGridSteps> made;
    std::size_t code = 0;
    for (std::size_t i = 0; i < made.size(); ++i) {
      const float place = -1.0f + 2.0f * static_cast<float>(i) / (kGridSteps - 1);
      while (code + 1 < book.size() && 0.5f * (book[code] + book[code + 1]) < place) ++code;
      made[i] = static_cast<std::uint8_t>(code);
    }
    return made;
  }();
  return codes;
}

// The code of a value over its block's largest magnitude.
std::uint8_t NestedCodeOf(float value) {
  if (std::isnan(value)) return 0;
  const float place = (std::clamp(value, -1.0f, 1.0f) + 1.0f) * 0.5f * (kGridSteps - 1) + 0.5f;
  return CodesOnGrid()[static_cast<std::size_t>(place)];
}

}  // namespace

Nf4Dequantizer FindNf4(Nf4Path path) {
  if (path == Nf4Path::kPortable) return nf4::Dequantize<Portable>;
#if defined(__x86_64__)
  if (path == Nf4Path::kAvx2 && ThisCpu().avx2) return nf4::kAvx2;
  if (path == Nf4Path::kAvx512 && ThisCpu().avx512) return nf4::kAvx512;
#endif
  return nullptr;
}

namespace op {

void RunOnCpu(const DequantizeNf4& d) {
  static const Nf4Dequantizer fastest = [] {
    for (const Nf4Path path : {Nf4Path::kAvx512, Nf4Path::kAvx2}) {
      if (const auto found = FindNf4(path)) return found;
    }
    return FindNf4(Nf4Path::kPortable);
  }();
  const Nf4Rows rows{d.source, d.out.type(), d.out.data()};
  OverRows(Nf4Blocks(d.source.count), kNf4Block,
           [&](std::int64_t begin, std::int64_t end) { fastest(rows, begin, end); });
}

}  // namespace op

template void CpuKernel<op::DequantizeNf4>(const void*);

void QuantizeNf4(const Nf4Quantization& tensor, std::int64_t begin, std::int64_t end) {
  const std::int64_t whole = std::min(end, tensor.count / kNf4Block);
  QuantizeWhole(tensor, begin, whole);
  for (std::int64_t block = std::max(begin, whole); block < end; ++block) {
    QuantizeRest(tensor, block);
  }
}

void QuantizeNf4Nested(const Nf4NestedQuantization& tensor) {
  for (std::int64_t first = 0; first < tensor.blocks; first += kNf4NestedBlock) {
    const std::int64_t end = std::min(first + kNf4NestedBlock, tensor.blocks);
    float largest = 0;
    for (std::int64_t i = first; i < end; ++i) {
      const float magnitude = std::abs(tensor.absmax[i] - tensor.offset);
      largest = largest < magnitude ? magnitude : largest;
    }
    tensor.nested_absmax[first / kNf4NestedBlock] = largest;
    const float factor = 1.0f / largest;
    for (std::int64_t i = first; i < end; ++i) {
      tensor.absmax_codes[i] = largest == 0
                                   ? std::uint8_t{0}
                                   : NestedCodeOf((tensor.absmax[i] - tensor.offset) * factor);
    }
  }
}

const std::array<float, 256>& Nf4NestedCode() {
  static const std::array<float, 256> book = [] {
    constexpr double kDecades[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    std::array<float, 256> made{};  // one entry is zero
    std::size_t count = 1;
    made[count++] = 1.0f;
    for (int i = 0; i < 7; ++i) {
      // Bounds of steps from 0.1 to 1, counted from the nearer end in one rounding each, as
      // torch.linspace has them.
      const int steps = 1 << i;
      const float step = (1.0f - 0.1f) / static_cast<float>(steps);
      const auto bound = [&](int k) {
        return k < (steps + 1) / 2 ? std::fma(step, static_cast<float>(k), 0.1f)
                                   : std::fma(-step, static_cast<float>(steps - k), 1.0f);
      };
      for (int k = 0; k < steps; ++k) {
        const float entry = static_cast<float>(kDecades[i]) * ((bound(k) + bound(k + 1)) / 2);
        made[count++] = entry;
        made[count++] = -entry;
      }
    }
    std::sort(made.begin(), made.end());
    return made;
  }();
  return book;
}

}  // namespace muster
