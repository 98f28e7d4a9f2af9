// CharacterPairs: which characters may stand side by side within a token that merges make.
//
// Where two known characters may not, no merge can cross the place between them, and a long text
// can be cut there without changing its ids. That keeps the pieces of a vocabulary that has no
// pre-tokenizer (Llama 2: the whole document) as short as words, for which a cache is of use.
//
// A filter that may err to one side: MayAdjoin is true for some pairs that were not added, which
// costs a cut and nothing else.
//
// Owned by Bpe. Immutable after Add; any thread.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <string_view>

namespace muster {

class CharacterPairs {
 public:
  // Every two neighbours of `token`, which is valid UTF-8.
  void Add(std::string_view token);

  bool MayAdjoin(char32_t left, char32_t right) const { return (*bits_)[Slot(left, right)]; }

 private:
  static constexpr std::size_t kBits = std::size_t{1} << 20;  // 128 KiB: few enough collisions

  static std::size_t Slot(char32_t left, char32_t right) {
    const std::uint64_t pair = (std::uint64_t{left} << 32) | right;
    return static_cast<std::size_t>((pair * 0x9e3779b97f4a7c15u) >> 44);
  }

  std::unique_ptr<std::bitset<kBits>> bits_ = std::make_unique<std::bitset<kBits>>();
};

}  // namespace muster
