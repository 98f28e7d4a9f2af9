#include "trainer/text/tokenizer/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>

#include "common/base/check.h"

namespace muster {
namespace {

// What a lead byte promises: bytes of the sequence, and the range of the second byte that keeps
// out overlong forms, surrogates and code points beyond U+10FFFF.
struct LeadByte {
  int length;
  unsigned char second_min;
  unsigned char second_max;
};

LeadByte ClassifyLead(unsigned char byte) {
  if (byte >= 0xc2 && byte <= 0xdf) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte >= 0xe1 && byte <= 0xef) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte >= 0xf1 && byte <= 0xf3) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

// Symbols that are Alphabetic all the same.
bool IsCircledLetter(char32_t c) {
  return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
         (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1, true};
  const LeadByte kind = ClassifyLead(lead);
  if (kind.length == 0) return {};
  char32_t code_point = lead & (0x7fu >> kind.length);
  for (int i = 1; i < kind.length; ++i) {
    if (static_cast<std::size_t>(i) >= text.size()) return {0xfffd, i, false};
    const auto byte = static_cast<unsigned char>(text[static_cast<std::size_t>(i)]);
    const unsigned char low = i == 1 ? kind.second_min : 0x80;
    const unsigned char high = i == 1 ? kind.second_max : 0xbf;
    if (byte < low || byte > high) return {0xfffd, i, false};
    code_point = (code_point << 6) | (byte & 0x3fu);
  }
  return {code_point, kind.length, true};
}

Utf8Char LastUtf8(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  return DecodeUtf8(text.substr(begin));
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    if (c.valid)
      out.append(text.substr(0, static_cast<std::size_t>(c.length)));
    else
      out.append("\xef\xbf\xbd");
    text.remove_prefix(static_cast<std::size_t>(c.length));
  }
  return out;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out->append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  std::size_t begin = 0;
  for (std::size_t found; (found = text.find(from, begin)) != std::string_view::npos;
       begin = found + from.size())
    out.append(text.substr(begin, found - begin)).append(to);
  return out.append(text.substr(begin));
}

std::string NormalizeUtf8(std::string_view text, NormalForm form) {
  // ASCII is in every normal form.
  if (std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; }))
    return std::string(text);
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0) |
                                     (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE));
  utf8proc_uint8_t* normal = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &normal, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(normal, &std::free);
  MUSTER_CHECK(size >= 0, utf8proc_errmsg(size));
  return std::string(reinterpret_cast<const char*>(normal), static_cast<std::size_t>(size));
}

std::string LowerUtf8(std::string_view text) {
  constexpr char32_t kCapitalIWithDot = 0x130;
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    if (c.code_point == kCapitalIWithDot)
      out += "i\xcc\x87";  // the one character that becomes two
    else
      AppendUtf8(
          static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code_point))),
          &out);
    text.remove_prefix(static_cast<std::size_t>(c.length));
  }
  return out;
}

bool IsUnicodeSpace(char32_t c) {
  return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool IsUnicodeNumeric(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool IsUnicodePunctuation(char32_t c) {
  if (c < 0x80) return std::ispunct(static_cast<int>(c)) != 0;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return true;
    default: return false;
  }
}

bool IsUnicodeWord(char32_t c) {
  if (IsCircledLetter(c) || c == 0x200c || c == 0x200d) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

std::size_t SpacesAtEnd(std::string_view text) {
  std::size_t count = 0;
  while (count < text.size()) {
    const Utf8Char c = LastUtf8(text.substr(0, text.size() - count));
    if (!IsUnicodeSpace(c.code_point)) break;
    count += static_cast<std::size_t>(c.length);
  }
  return count;
}

std::size_t SpacesAtBegin(std::string_view text) {
  std::size_t count = 0;
  while (count < text.size()) {
    const Utf8Char c = DecodeUtf8(text.substr(count));
    if (!IsUnicodeSpace(c.code_point)) break;
    count += static_cast<std::size_t>(c.length);
  }
  return count;
}

}  // namespace muster
