// Copies of large arrays that leave the processor's caches to training.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace muster {

// memcpy for what this core will not read soon: stores past the caches, where the processor
// can. The copy does not fetch the lines that it overwrites, so it moves a third less, and what the
// next step works on stays cached. Any alignment; any thread.
void StreamCopy(void* to, const void* from, std::size_t bytes);

// The same in pieces: other threads see them, in order with later stores, after StreamFence.
inline void StreamPiece(void* to, const void* from, std::size_t bytes);
void StreamFence();

#ifdef __SSE2__

// The lowest level of x86-64 is enough: a line is filled by four stores and leaves as one.
inline void StreamPiece(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(out) % kLine;
  const std::size_t head = std::min(bytes, misaligned == 0 ? 0 : kLine - misaligned);
  if (head > 0) std::memcpy(out, in, head);
  std::size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(in + at);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    auto* target = reinterpret_cast<__m128i*>(out + at);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  if (at < bytes) std::memcpy(out + at, in + at, bytes - at);
}

#else

inline void StreamPiece(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

#endif

}  // namespace muster
