#include "trainer/text/tokenizer/split_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <memory>

namespace muster {
namespace {

// White_Space. PCRE2's own \s also holds U+180E, which Unicode took out.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

constexpr std::string_view kRefusedEscapes = "wWbBhHRXKGyYOkg";

Status Refuse(std::string_view pattern, const std::string& what) {
  return Unimplemented("the pattern " + std::string(pattern) + " uses " + what +
                       ", which this version does not support");
}

// Appends what stands for `\c`.
void AppendEscape(char c, bool in_class, std::string* out) {
  if (c == 's' && in_class)
    out->append(kSpaces);
  else if (c == 's')
    out->append("[").append(kSpaces).append("]");
  else if (c == 'S' && !in_class)
    out->append("[^").append(kSpaces).append("]");
  else
    (out->append("\\")).push_back(c);
}

}  // namespace

Result<std::string> TranslatePattern(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  std::size_t class_begin = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (kRefusedEscapes.find(escaped) != std::string_view::npos)
        return Refuse(pattern, std::string("\\") + escaped);
      AppendEscape(escaped, in_class, &out);
      continue;
    }
    if (in_class && c == '[') return Refuse(pattern, "a class within a class");
    if (in_class && c == '&' && pattern.substr(i, 2) == "&&")
      return Refuse(pattern, "an intersection of classes");
    if (!in_class && c == '[') {
      in_class = true;
      class_begin = pattern.substr(i + 1, 1) == "^" ? i + 2 : i + 1;
    } else if (in_class && c == ']' && i > class_begin) {
      in_class = false;
    }
    out.push_back(c);
  }
  return out;
}

struct SplitRegex::Impl {
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code{nullptr, &pcre2_code_free};

  // pcre2_match, once more without the compiled-in machine code where that ran out of stack.
  int Match(std::string_view text, std::size_t offset, pcre2_match_data* match) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const int rc =
        pcre2_match(code.get(), subject, text.size(), offset, PCRE2_NO_UTF_CHECK, match, nullptr);
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT) return rc;
    return pcre2_match(code.get(), subject, text.size(), offset, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       match, nullptr);
  }
};

SplitRegex::SplitRegex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SplitRegex::SplitRegex(SplitRegex&&) noexcept = default;
SplitRegex& SplitRegex::operator=(SplitRegex&&) noexcept = default;
SplitRegex::~SplitRegex() = default;

Result<SplitRegex> SplitRegex::Compile(const std::string& pattern, PatternKind kind) {
  std::string translated = pattern;
  std::uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C;
  if (kind == PatternKind::kLiteral) {
    options |= PCRE2_LITERAL;
    options &= ~static_cast<std::uint32_t>(PCRE2_NEVER_BACKSLASH_C);
  } else {
    MUSTER_ASSIGN_OR_RETURN(translated, TranslatePattern(pattern));
    options |= PCRE2_UCP | PCRE2_MULTILINE;  // Oniguruma's ^ and $ are always those of lines
  }
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE where = 0;
  auto impl = std::make_unique<Impl>();
  impl->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 options, &error, &where, context.get()));
  if (!impl->code) {
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(error, text, sizeof text);
    return InvalidArgument("the pattern " + pattern +
                           " cannot be used: " + reinterpret_cast<const char*>(text));
  }
  // Without machine code on this platform the interpreter does the same, slower.
  pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE);
  return SplitRegex(std::move(impl));
}

bool SplitRegex::MayMatchEmpty() const {
  std::uint32_t may = 0;
  pcre2_pattern_info(impl_->code.get(), PCRE2_INFO_MATCHEMPTY, &may);
  return may != 0;
}

void SplitRegex::Split(std::string_view text,
                       const std::function<void(std::string_view, bool)>& piece) const {
  // Of this call alone, so that threads may share the pattern.
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(impl_->code.get(), nullptr), &pcre2_match_data_free);
  std::size_t gap_begin = 0;
  std::size_t offset = 0;
  while (offset < text.size() && impl_->Match(text, offset, match.get()) > 0) {
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    const std::size_t begin = bounds[0];
    const std::size_t end = bounds[1];
    if (begin >= end) {
      // An empty match splits nothing; go on behind the next character.
      offset = std::max(offset, begin) + 1;
      while (offset < text.size() && (static_cast<unsigned char>(text[offset]) & 0xc0) == 0x80)
        ++offset;
      continue;
    }
    if (begin > gap_begin) piece(text.substr(gap_begin, begin - gap_begin), false);
    piece(text.substr(begin, end - begin), true);
    gap_begin = offset = end;
  }
  if (gap_begin < text.size()) piece(text.substr(gap_begin), false);
}

}  // namespace muster
