#include "trainer/text/chat/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/operators.h"

namespace muster::jinja {
namespace {

std::string Hex(const char* prefix, std::int32_t number, int digits) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, "%s%0*x", prefix, digits, static_cast<unsigned>(number));
  return buffer;
}

// How repr writes one code point of a text in these quotes; empty: as it is.
std::string ReprEscape(std::int32_t c, char quote) {
  switch (c) {
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: break;
  }
  if (c == quote) return std::string("\\") + quote;
  if (IsPrintable(c)) return "";
  if (c < 0x100) return Hex("\\x", c, 2);
  return c < 0x10000 ? Hex("\\u", c, 4) : Hex("\\U", c, 8);
}

template <typename Escape>
void AppendEscaped(const Text& text, const Escape& escape, Text* out) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t next = NextOffset(text.bytes(), i);
    const std::string escaped = escape(CodePointAt(text.bytes(), i));
    if (escaped.empty()) {
      out->AppendPart(text, i, next);
    } else {
      out->Append(escaped, text.MarkAt(i));
    }
    i = next;
  }
}

void AppendReprText(const Text& text, Text* out) {
  const bool single =
      text.bytes().find('\'') == std::string::npos || text.bytes().find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  out->Append(std::string(1, quote));
  AppendEscaped(
      text, [quote](std::int32_t c) { return ReprEscape(c, quote); }, out);
  out->Append(std::string(1, quote));
}

class ReprWriter {
 public:
  explicit ReprWriter(Budget& budget) : budget_(budget) {}

  void Write(const Value& value) {
    budget_.Spend(1);
    if (value.is_text()) {
      budget_.SpendFor(value);
      AppendReprText(value.text(), &out_);
    } else if (value.is_list()) {
      WriteList(value);
    } else if (value.is_dict()) {
      WriteDict(value.dict());
    } else if (value.As<Namespace>() != nullptr || value.As<const Loop>() != nullptr ||
               value.As<const Function>() != nullptr) {
      Fail("printing a " + value.TypeName() + " is not supported");
    } else {
      out_.Append(Repr(value));
    }
  }

  Text Take() { return std::move(out_); }

 private:
  void WriteList(const Value& value) {
    const bool tuple = value.is_list(ListKind::kTuple);
    if (!tuple && !value.is_list(ListKind::kList))
      Fail("printing a " + value.TypeName() + " is not supported; make it a list with |list");
    const auto& items = value.list().items;
    out_.Append(tuple ? "(" : "[");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(", ");
      Write(items[i]);
    }
    if (tuple && items.size() == 1) out_.Append(",");
    out_.Append(tuple ? ")" : "]");
  }

  void WriteDict(const Dict& dict) {
    out_.Append("{");
    for (std::size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) out_.Append(", ");
      Write(dict.entries[i].first);
      out_.Append(": ");
      Write(dict.entries[i].second);
    }
    out_.Append("}");
  }

  Budget& budget_;
  Text out_;
};

std::string JsonEscape(std::int32_t c, bool ensure_ascii) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\f': return "\\f";
    case '\b': return "\\b";
    default: break;
  }
  if (c < 0x20) return Hex("\\u", c, 4);
  if (!ensure_ascii || c < 0x7F) return "";
  if (c < 0x10000) return Hex("\\u", c, 4);
  const std::int32_t rest = c - 0x10000;
  return Hex("\\u", 0xD800 + (rest >> 10), 4) + Hex("\\u", 0xDC00 + (rest & 0x3FF), 4);
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void Write(const Value& value, int level) {
    budget_.Spend(1);
    if (value.is_text()) {
      WriteText(value);
    } else if (value.is_list(ListKind::kList) || value.is_list(ListKind::kTuple)) {
      const auto& items = value.list().items;
      WriteAll('[', ']', items.size(), level, [&](std::size_t i) { Write(items[i], level + 1); });
    } else if (value.is_dict()) {
      WriteDict(value.dict(), level);
    } else {
      out_.Append(Scalar(value));
    }
  }

  Text Take() { return std::move(out_); }

 private:
  void WriteText(const Value& value) {
    budget_.SpendFor(value);
    out_.Append("\"");
    AppendEscaped(
        value.text(), [this](std::int32_t c) { return JsonEscape(c, style_.ensure_ascii); }, &out_);
    out_.Append("\"");
  }

  void WriteDict(const Dict& dict, int level) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [this](const auto* a, const auto* b) {
        return Less(a->first, b->first, budget_);
      });
    }
    WriteAll('{', '}', entries.size(), level, [&](std::size_t i) {
      const Value& key = entries[i]->first;
      WriteText(key.is_text() ? key : Value(Scalar(key)));
      out_.Append(style_.key_separator);
      Write(entries[i]->second, level + 1);
    });
  }

  template <typename WriteItem>
  void WriteAll(char open, char close, std::size_t count, int level, const WriteItem& write) {
    out_.Append(std::string(1, open));
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      NewLine(level + 1);
      write(i);
    }
    if (count > 0) NewLine(level);
    out_.Append(std::string(1, close));
  }

  void NewLine(int level) {
    if (!style_.indent) return;
    out_.Append("\n");
    for (int i = 0; i < level; ++i) out_.Append(*style_.indent);
  }

  static std::string Scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_boolean()) return value.boolean() ? "true" : "false";
    if (value.is_integer()) return std::to_string(value.integer());
    if (!value.is_float()) Fail("a " + value.TypeName() + " cannot be written as JSON");
    if (std::isnan(value.number())) return "NaN";
    if (std::isinf(value.number())) return value.number() > 0 ? "Infinity" : "-Infinity";
    return FloatText(value.number());
  }

  const JsonStyle& style_;
  Budget& budget_;
  Text out_;
};

}  // namespace

std::string FloatText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, std::abs(number),
                                 std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<std::size_t>(end.ptr - buffer));
  const std::size_t e = shortest.find('e');
  const int exponent = std::stoi(std::string(shortest.substr(e + 1)));
  std::string digits;
  for (const char c : shortest.substr(0, e))
    if (c != '.') digits += c;
  std::string text = std::signbit(number) ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    text += digits.substr(0, 1);
    if (count > 1) text += "." + digits.substr(1);
    std::snprintf(buffer, sizeof buffer, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return text + buffer;
  }
  if (exponent < 0) return text + "0." + std::string(-exponent - 1, '0') + digits;
  if (count <= exponent + 1) return text + digits + std::string(exponent + 1 - count, '0') + ".0";
  return text + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

std::string Repr(const Value& value) {
  if (value.is_none()) return "None";
  if (value.is_boolean()) return value.boolean() ? "True" : "False";
  if (value.is_integer()) return std::to_string(value.integer());
  if (value.is_float()) return FloatText(value.number());
  if (value.is_undefined()) return "Undefined";
  if (!value.is_text()) return "a " + value.TypeName();
  Text text;
  AppendReprText(value.text(), &text);
  return text.bytes();
}

Text ToText(const Value& value, Budget& budget) {
  if (value.is_text()) {
    budget.SpendFor(value);
    return value.text();
  }
  if (value.is_undefined()) return Text();
  ReprWriter writer(budget);
  writer.Write(value);
  return writer.Take();
}

Text ToJson(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.Write(value, 0);
  return writer.Take();
}

}  // namespace muster::jinja
