#include "trainer/comm/transport/reduce.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "trainer/core/element.h"
#include "trainer/core/vector_clones.h"

namespace muster {
namespace {

// Partial results of so many elements stay in the first-level cache while all operands are added.
constexpr std::size_t kBlock = 1024;
// Bytes of the next block, asked for early: the processor's own read-ahead ends at the end of a
// page.
constexpr std::size_t kAheadBytes = 1024;
constexpr std::size_t kSmallBytes = 32 * 1024;

template <typename Element>
struct Tag {
  using Type = Element;
};

// Calls with the tag of a type that is computed in Computed.
template <typename Computed, typename Call>
MUSTER_INLINE void WithType(ElementType type, Call call) {
  if constexpr (std::is_integral_v<Computed>) {
    if (type == ElementType::kUint8) call(Tag<std::uint8_t>());
    if (type == ElementType::kInt64) call(Tag<std::int64_t>());
  } else {
    if (type == ElementType::kFloat32) call(Tag<float>());
    if (type == ElementType::kBFloat16) call(Tag<BFloat16>());
    if (type == ElementType::kFloat16) call(Tag<Float16>());
    if constexpr (std::is_same_v<Computed, double>) {
      if (type == ElementType::kFloat64) call(Tag<double>());
    }
  }
}

template <typename Computed, typename Element>
MUSTER_INLINE Computed Get(Element value) {
  if constexpr (std::is_integral_v<Element>)
    return static_cast<Computed>(value);
  else
    return static_cast<Computed>(Load(value));
}

template <typename Computed, typename Element>
MUSTER_INLINE void Put(Element* to, Computed value) {
  if constexpr (std::is_integral_v<Element>)
    *to = static_cast<Element>(value);
  else
    Store(to, static_cast<Wide<Element>>(value));
}

template <typename Computed>
MUSTER_INLINE Computed Add(Computed a, Computed b) {
  if constexpr (std::is_integral_v<Computed>) {
    // Sums of integers wrap, in every build.
    return static_cast<Computed>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

template <typename Computed, typename Element>
MUSTER_INLINE void Combine(Computed* partial, const Element* operand, std::size_t count,
                           ReduceOp op) {
  if (op == ReduceOp::kSum) {
    for (std::size_t i = 0; i < count; ++i) partial[i] = Add(partial[i], Get<Computed>(operand[i]));
  } else if (op == ReduceOp::kMin) {
    for (std::size_t i = 0; i < count; ++i) {
      const Computed value = Get<Computed>(operand[i]);
      partial[i] = value < partial[i] ? value : partial[i];
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      const Computed value = Get<Computed>(operand[i]);
      partial[i] = partial[i] < value ? value : partial[i];
    }
  }
}

template <typename Computed>
MUSTER_INLINE void RoundAll(Computed* partial, std::size_t count, ElementType type) {
  WithType<Computed>(type, [=](auto tag) MUSTER_INLINE_CALL {
    using Element = typename decltype(tag)::Type;
    if constexpr (!std::is_same_v<Element, Computed>) {
      for (std::size_t i = 0; i < count; ++i) {
        Element rounded;
        Put(&rounded, partial[i]);
        partial[i] = Get<Computed>(rounded);
      }
    }
  });
}

template <typename Computed>
MUSTER_INLINE void StoreAll(const Computed* partial, std::size_t at, std::size_t count,
                            const ReduceTarget& target) {
  WithType<Computed>(target.type, [=](auto tag) MUSTER_INLINE_CALL {
    auto* to = static_cast<typename decltype(tag)::Type*>(target.data) + at;
    if (target.accumulate) {
      for (std::size_t i = 0; i < count; ++i) Put(to + i, Add(Get<Computed>(to[i]), partial[i]));
    } else {
      for (std::size_t i = 0; i < count; ++i) Put(to + i, partial[i]);
    }
  });
}

MUSTER_INLINE void ReadAhead(const void* data) {
  const char* line = static_cast<const char*>(data);
  for (std::size_t at = 0; at < kAheadBytes; at += 64) __builtin_prefetch(line + at);
}

template <typename Computed>
MUSTER_INLINE void ReduceIn(std::span<const Operand> operands, ElementType sum_type, ReduceOp op,
                            const ReduceTarget& target, std::size_t total) {
  alignas(64) Computed partial[kBlock];
  for (std::size_t at = 0; at < total; at += kBlock) {
    const std::size_t count = std::min(kBlock, total - at);
    bool first = true;
    for (const Operand& operand : operands) {
      WithType<Computed>(operand.type, [&](auto tag) MUSTER_INLINE_CALL {
        const auto* from = static_cast<const typename decltype(tag)::Type*>(operand.data) + at;
        if (at + kBlock < total) ReadAhead(from + kBlock);
        if (first) {
          for (std::size_t i = 0; i < count; ++i) partial[i] = Get<Computed>(from[i]);
        } else {
          Combine(partial, from, count, op);
        }
      });
      RoundAll(partial, count, sum_type);
      first = false;
    }
    StoreAll(partial, at, count, target);
  }
}

MUSTER_VECTOR_CLONES
void ReduceInFloat(std::span<const Operand> operands, ElementType sum_type, ReduceOp op,
                   const ReduceTarget& target, std::size_t count) {
  ReduceIn<float>(operands, sum_type, op, target, count);
}

MUSTER_VECTOR_CLONES
void ReduceInDouble(std::span<const Operand> operands, ElementType sum_type, ReduceOp op,
                    const ReduceTarget& target, std::size_t count) {
  ReduceIn<double>(operands, sum_type, op, target, count);
}

void ReduceInIntegers(std::span<const Operand> operands, ElementType sum_type, ReduceOp op,
                      const ReduceTarget& target, std::size_t count) {
  ReduceIn<std::int64_t>(operands, sum_type, op, target, count);
}

}  // namespace

void Reduce(std::span<const Operand> operands, ElementType sum_type, ReduceOp op,
            const ReduceTarget& target, std::size_t count) {
  const auto is_double = [](ElementType type) { return type == ElementType::kFloat64; };
  if (IsInteger(sum_type)) return ReduceInIntegers(operands, sum_type, op, target, count);
  if (is_double(sum_type) || is_double(target.type) ||
      std::ranges::any_of(operands, is_double, &Operand::type)) {
    return ReduceInDouble(operands, sum_type, op, target, count);
  }
  return ReduceInFloat(operands, sum_type, op, target, count);
}

void Convert(const Operand& from, void* to, ElementType type, std::size_t count) {
  Reduce({&from, 1}, from.type, ReduceOp::kSum, {.data = to, .type = type}, count);
}

ElementType PartialSumType(ElementType type) {
  const bool half = type == ElementType::kBFloat16 || type == ElementType::kFloat16;
  return half ? ElementType::kFloat32 : type;
}

bool IsSmallAllReduce(std::size_t count, ElementType type, int ranks) {
  return count * ElementSize(type) * static_cast<std::size_t>(ranks) <= kSmallBytes;
}

std::size_t AllReduceBlock(std::size_t count, int ranks) {
  return (count + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks);
}

}  // namespace muster
