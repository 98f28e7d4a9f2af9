#include "trainer/text/chat/jinja/text.h"

#include <utf8proc.h>

#include <utility>

#include "trainer/text/chat/jinja/error.h"

namespace muster::jinja {
namespace {

constexpr std::int32_t kSharpS = 0xDF;

utf8proc_category_t CategoryOf(std::int32_t code_point) { return utf8proc_category(code_point); }

void CheckSize(std::size_t size) {
  if (size > kMaxTextBytes)
    Fail("a text grows beyond " + std::to_string(kMaxTextBytes >> 20) + " MiB");
}

}  // namespace

Text::Text(std::string bytes, Mark mark) : bytes_(std::move(bytes)) {
  CheckSize(bytes_.size());
  if (mark != kPlain) marks_.assign(bytes_.size(), static_cast<char>(mark));
}

void Text::Append(std::string_view bytes, Mark mark) {
  CheckSize(bytes_.size() + bytes.size());
  if (mark != kPlain && marks_.empty()) marks_.assign(bytes_.size(), kPlain);
  if (mark != kPlain || !marks_.empty()) marks_.append(bytes.size(), static_cast<char>(mark));
  bytes_.append(bytes);
}

void Text::AppendPart(const Text& other, std::size_t begin, std::size_t end) {
  CheckSize(bytes_.size() + (end - begin));
  if (!other.marks_.empty()) {
    if (marks_.empty()) marks_.assign(bytes_.size(), kPlain);
    marks_.append(other.marks_, begin, end - begin);
  } else if (!marks_.empty()) {
    marks_.append(end - begin, kPlain);
  }
  bytes_.append(other.bytes_, begin, end - begin);
}

Text Text::Part(std::size_t begin, std::size_t end) const {
  Text part;
  part.AppendPart(*this, begin, end);
  return part;
}

void Text::AddMark(Mark mark) {
  if (marks_.empty()) marks_.assign(bytes_.size(), kPlain);
  for (char& each : marks_) each = static_cast<char>(each | mark);
}

std::size_t NextOffset(std::string_view text, std::size_t offset) {
  ++offset;
  while (offset < text.size() && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80)
    ++offset;
  return offset;
}

std::size_t PreviousOffset(std::string_view text, std::size_t offset) {
  --offset;
  while (offset > 0 && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80) --offset;
  return offset;
}

std::size_t Length(std::string_view text) {
  std::size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  return count;
}

std::size_t OffsetOf(std::string_view text, std::size_t index) {
  std::size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) offset = NextOffset(text, offset);
  return offset;
}

std::int32_t CodePointAt(std::string_view text, std::size_t offset) {
  utf8proc_int32_t code_point = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + offset,
                   static_cast<utf8proc_ssize_t>(text.size() - offset), &code_point);
  return code_point;
}

void AppendCodePoint(std::string* out, std::int32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(code_point, bytes);
  out->append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

bool IsValidUtf8(std::string_view text) {
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t code_point = 0;
    const auto count = utf8proc_iterate(at, left, &code_point);
    if (count <= 0) return false;
    at += count;
    left -= count;
  }
  return true;
}

bool IsSpace(std::int32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsAlphabetic(std::int32_t code_point) {
  const auto category = CategoryOf(code_point);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDigit(std::int32_t code_point) { return CategoryOf(code_point) == UTF8PROC_CATEGORY_ND; }

bool IsPrintable(std::int32_t code_point) {
  switch (CategoryOf(code_point)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return code_point == ' ';
    default: return true;
  }
}

bool IsUpper(std::int32_t code_point) { return CategoryOf(code_point) == UTF8PROC_CATEGORY_LU; }

bool IsLower(std::int32_t code_point) { return CategoryOf(code_point) == UTF8PROC_CATEGORY_LL; }

void AppendUpper(std::string* out, std::int32_t code_point) {
  if (code_point == kSharpS) {
    out->append("SS");
  } else {
    AppendCodePoint(out, utf8proc_toupper(code_point));
  }
}

void AppendLower(std::string* out, std::int32_t code_point) {
  AppendCodePoint(out, utf8proc_tolower(code_point));
}

Interval Stripped(std::string_view text, const StripOptions& options) {
  const auto goes = [&](std::size_t offset) {
    if (!options.given) return IsSpace(CodePointAt(text, offset));
    const std::string_view point = text.substr(offset, NextOffset(text, offset) - offset);
    return options.characters.find(point) != std::string_view::npos;
  };
  Interval kept{0, text.size()};
  while (options.left && kept.begin < kept.end && goes(kept.begin))
    kept.begin = NextOffset(text, kept.begin);
  while (options.right && kept.end > kept.begin) {
    const std::size_t last = PreviousOffset(text, kept.end);
    if (!goes(last)) break;
    kept.end = last;
  }
  return kept;
}

std::vector<Interval> SplitLines(std::string_view text) {
  std::vector<Interval> lines;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::int32_t c = CodePointAt(text, i);
    std::size_t next = NextOffset(text, i);
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
    if (ends) {
      lines.push_back({begin, i});
      begin = next;
    }
    i = next;
  }
  if (begin < text.size()) lines.push_back({begin, text.size()});
  return lines;
}

}  // namespace muster::jinja
