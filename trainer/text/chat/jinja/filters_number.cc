// Filters that give numbers (filters.h).
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "trainer/text/chat/jinja/arguments.h"
#include "trainer/text/chat/jinja/error.h"
#include "trainer/text/chat/jinja/filter_table.h"
#include "trainer/text/chat/jinja/operators.h"
#include "trainer/text/chat/jinja/text_operations.h"

namespace muster::jinja {
namespace {

// The digits of a number that Python would read: no white space around, no underscores within.
std::string NumberText(const Text& text) {
  const std::string all = Strip(text, {}).bytes();
  std::string digits;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool between = i > 0 && i + 1 < all.size() && std::isalnum(all[i - 1]) != 0 &&
                         std::isalnum(all[i + 1]) != 0;
    if (all[i] == '_' && between) continue;
    digits += all[i];
  }
  return digits;
}

// int(text, base); none: Python raises a ValueError.
std::optional<std::int64_t> ReadInteger(const Text& text, std::int64_t base) {
  std::string digits = NumberText(text);
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  const auto has_prefix = [&](char letter) {
    return digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == letter;
  };
  const std::pair<std::int64_t, char> prefixes[] = {{2, 'b'}, {8, 'o'}, {16, 'x'}};
  for (const auto& [of_base, letter] : prefixes)
    if (base == of_base && has_prefix(letter)) digits.erase(0, 2);
  if (digits.empty() || digits.starts_with('-')) return std::nullopt;
  if (negative) digits.insert(0, "-");
  std::int64_t number = 0;
  const auto read =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, static_cast<int>(base));
  if (read.ec == std::errc::result_out_of_range) Fail("an integer does not fit into 64 bits");
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) return std::nullopt;
  return number;
}

// float(text).
std::optional<double> ReadFloat(const Text& text) {
  const std::string digits = NumberText(text);
  if (digits.empty() || digits.find_first_of("xXpP(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(digits.c_str(), &end);
  if (end != digits.c_str() + digits.size()) return std::nullopt;
  return number;
}

Value DoInt(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "int", {"default", "base"});
  const Value absent = given.Has(0) ? given[0] : Value(0);
  RequireDefined(input);
  const std::int64_t base = given.IntegerOr(1, 10);
  if (base < 2 || base > 36) Fail("int needs a base from 2 to 36");
  std::optional<double> number;
  if (input.is_text()) {
    if (const auto integer = ReadInteger(input.text(), base)) return *integer;
    number = ReadFloat(input.text());
  } else if (input.is_float()) {
    number = input.number();
  } else if (input.is_number()) {
    return input.integer();
  }
  if (!number || !std::isfinite(*number)) return absent;
  if (std::abs(*number) >= 0x1p63) Fail("an integer does not fit into 64 bits");
  return static_cast<std::int64_t>(*number);
}

Value DoFloat(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "float", {"default"});
  RequireDefined(input);
  if (input.is_number()) return input.AsDouble();
  if (input.is_text())
    if (const auto number = ReadFloat(input.text())) return *number;
  return given.Has(0) ? given[0] : Value(0.0);
}

Value DoAbs(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "abs", {});
  RequireDefined(input);
  if (!input.is_number()) Fail("abs needs a number, not a " + input.TypeName());
  if (input.is_float()) return std::abs(input.number());
  return input.integer() < 0 ? Negate(input) : Value(input.integer());
}

// round(number, digits): the nearest in decimal, halves as the exact binary value has them.
double RoundDecimal(double number, std::int64_t digits) {
  if (digits == 0) return std::nearbyint(number);
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), number);
  return std::strtod(buffer, nullptr);
}

Value DoRound(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "round", {"precision", "method"});
  RequireDefined(input);
  if (!input.is_number()) Fail("round needs a number, not a " + input.TypeName());
  const std::int64_t digits = given.IntegerOr(0, 0);
  if (digits < 0 || digits > 100) Fail("round needs a precision from 0 to 100");
  const std::string method = given.Has(1) ? given.TextAt(1).bytes() : "common";
  if (method == "common") {
    if (!input.is_float()) return input.integer();
    return std::isfinite(input.number()) ? RoundDecimal(input.number(), digits) : input.number();
  }
  if (method != "ceil" && method != "floor") Fail("round knows common, ceil and floor");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = input.AsDouble() * scale;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value DoLength(const Value& input, const Arguments& arguments, Budget&) {
  const Parameters given(arguments, "length", {});
  const auto length = LengthOf(input);
  if (!length) Fail("a " + input.TypeName() + " has no length");
  return *length;
}

Value DoSum(const Value& input, const Arguments& arguments, Budget& budget) {
  const Parameters given(arguments, "sum", {"attribute", "start"});
  Value sum = given.Has(1) ? given[1] : Value(0);
  for (const Value& item : Items(input, budget))
    sum = Apply(BinaryOp::kAdd, sum, given.HasValue(0) ? ItemByPath(item, given[0]) : item, budget);
  return sum;
}

constexpr NamedFilter kFilters[] = {
    {"int", DoInt},       {"float", DoFloat},  {"abs", DoAbs}, {"round", DoRound},
    {"length", DoLength}, {"count", DoLength}, {"sum", DoSum},
};

}  // namespace

std::span<const NamedFilter> NumberFilters() { return kFilters; }

}  // namespace muster::jinja
