// SplitRegex: a splitting pattern of tokenizer.json, run by PCRE2.
//
// The patterns are written for Oniguruma. What means the same in both is taken as it is, \s is
// spelled out as Unicode's White_Space, and the few constructs whose meaning differs (\w, \h, class
// intersections) are refused at Compile rather than matched slightly differently.
//
// Owned by a pre-tokenizer; immutable; any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace muster {

enum class PatternKind { kRegex, kLiteral };

class SplitRegex {
 public:
  static Result<SplitRegex> Compile(const std::string& pattern, PatternKind kind);

  SplitRegex(SplitRegex&&) noexcept;
  SplitRegex& operator=(SplitRegex&&) noexcept;
  ~SplitRegex();

  // Whether it may match the empty text, of which Split would make nothing.
  bool MayMatchEmpty() const;

  // Calls `piece` for every match and every gap between matches, in order, without empty ones.
  // `text` is valid UTF-8. A text on which the engine gives up (its limits are beyond any pattern
  // in use) is one gap.
  void Split(std::string_view text,
             const std::function<void(std::string_view piece, bool is_match)>& piece) const;

 private:
  struct Impl;
  explicit SplitRegex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The pattern in PCRE2's terms, or the construct that keeps it from being translated.
Result<std::string> TranslatePattern(std::string_view pattern);

}  // namespace muster
