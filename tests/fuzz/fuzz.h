// What the targets share. Each TARGET_fuzz.cc has one function, LLVMFuzzerTestOneInput, that takes
// any bytes: libFuzzer calls it in the preset `fuzz`, corpus_test.cc in every other. It fails by
// ending the process: a sanitizer's finding, a broken invariant, or a Require of its own.
//
// Functions without state; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/check.h"
#include "common/base/result.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace muster::fuzz {

inline std::string_view TextOf(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A property of the target, whatever the bytes.
inline void Require(bool holds, std::string_view property) { MUSTER_CHECK(holds, property); }

// What was printed must be read again, and be the same.
template <typename T>
void RequireSame(const Result<T>& again, const T& before, std::string_view property) {
  MUSTER_CHECK(again.ok(), std::string(property) + ": " + again.status().message());
  MUSTER_CHECK(*again == before, property);
}

// Takes bytes off the front of an input.
class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  std::string_view rest() const { return bytes_; }
  // 0 where nothing is left.
  std::uint8_t Byte() {
    const std::string_view byte = Take(1);
    return byte.empty() ? 0 : static_cast<std::uint8_t>(byte.front());
  }
  // A piece behind two bytes of its length, the lower first; shorter where the input ends.
  std::string_view Piece() {
    const std::size_t low = Byte();
    return Take(low + (std::size_t{Byte()} << 8));
  }
  std::string_view Take(std::size_t count) {
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view bytes_;
};

}  // namespace muster::fuzz
