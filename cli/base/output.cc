#include "cli/base/output.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace muster {
namespace {

std::string_view ColorOf(const std::string& cell) {
  static constexpr std::string_view kGreen = "\x1b[32m", kYellow = "\x1b[33m", kRed = "\x1b[31m";
  if (cell == "running" || cell == "succeeded" || cell == "ready") return kGreen;
  if (cell == "failed" || cell == "lost" || cell == "quarantined" || cell == "unkillable")
    return kRed;
  if (cell == "recovering" || cell == "starting" || cell == "suspect" || cell == "stopping" ||
      cell == "cancelled")
    return kYellow;
  return {};
}

void PrintRow(std::ostream& out, const std::vector<std::string>& cells,
              const std::vector<std::size_t>& widths, bool color) {
  std::string line;
  std::size_t blanks = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string& cell = cells[i];
    if (cell.empty()) {
      blanks += widths[i] + 2;
      continue;
    }
    const std::string_view paint = color ? ColorOf(cell) : std::string_view();
    line += std::string(blanks, ' ');
    line += std::string(paint) + cell + (paint.empty() ? "" : "\x1b[0m");
    blanks = widths[i] - cell.size() + 2;
  }
  out << line << '\n';
}

bool IsPlainYaml(const std::string& text) {
  static constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789-./";
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  static constexpr std::string_view kWords[] = {"true", "false", "null", "yes", "no",
                                                "on",   "off",   "y",    "n"};
  return !text.empty() && (is_letter(text[0]) || text[0] == '/') &&
         text.find_first_not_of(kPlain) == std::string::npos &&
         std::find(std::begin(kWords), std::end(kWords), text) == std::end(kWords);
}

std::string YamlScalar(const Json& value) {
  if (value.is_string() && IsPlainYaml(value.get_ref<const std::string&>()))
    return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void WriteYaml(const Json& value, int indent, std::string* out);

void WriteYamlValue(const Json& value, int indent, std::string* out) {
  if (value.is_structured() && !value.empty()) {
    *out += '\n';
    WriteYaml(value, indent, out);
  } else {
    *out += " " + YamlScalar(value) + "\n";
  }
}

void WriteYaml(const Json& value, int indent, std::string* out) {
  const std::string pad(static_cast<std::size_t>(indent), ' ');
  if (value.is_object()) {
    for (const auto& [key, entry] : value.items()) {
      *out += pad + YamlScalar(Json(key)) + ":";
      WriteYamlValue(entry, indent + 2, out);
    }
  } else if (value.is_array()) {
    for (const auto& element : value) {
      *out += pad + "-";
      WriteYamlValue(element, indent + 2, out);
    }
  } else {
    *out += pad + YamlScalar(value) + "\n";
  }
}

std::string TwoDigits(std::int64_t value) {
  return (value < 10 ? "0" : "") + std::to_string(value);
}

std::string Format(std::int64_t unix_ms, const char* format, bool utc) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm parts{};
  if (utc)
    ::gmtime_r(&seconds, &parts);
  else
    ::localtime_r(&seconds, &parts);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, format, &parts));
}

// Bytes of the character that `text` begins with; 0: it is none, as its first byte alone, which a
// terminal of eight bits could take for a command.
std::size_t Utf8Length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = byte(0) < 0x80                      ? 1
                             : byte(0) >= 0xc2 && byte(0) < 0xe0 ? 2
                             : byte(0) >= 0xe0 && byte(0) < 0xf0 ? 3
                             : byte(0) >= 0xf0 && byte(0) < 0xf5 ? 4
                                                                 : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return length;
}

}  // namespace

void Table::Print(std::ostream& out, bool color) const {
  std::vector<std::size_t> widths;
  for (const std::string& header : headers_) widths.push_back(header.size());
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  PrintRow(out, headers_, widths, false);
  for (const auto& row : rows_) PrintRow(out, row, widths, color);
}

std::string ToYaml(const Json& value) {
  std::string out;
  if (value.is_structured() && value.empty()) return value.dump() + "\n";
  WriteYaml(value, 0, &out);
  return out;
}

bool PrintStructured(std::ostream& out, OutputFormat format, const Json& value,
                     const std::string& name_key) {
  const auto dump = [](const Json& json, int indent) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace);
  };
  const Json elements = value.is_array() ? value : Json::array({value});
  switch (format) {
    case OutputFormat::kTable:
    case OutputFormat::kWide: return false;
    case OutputFormat::kJson: out << dump(value, 2) << '\n'; return true;
    case OutputFormat::kYaml: out << ToYaml(value); return true;
    case OutputFormat::kJsonl:
      for (const Json& element : elements) out << dump(element, -1) << '\n';
      return true;
    case OutputFormat::kName:
      for (const Json& element : elements) {
        const Json& name = element[name_key];
        out << (name.is_string() ? name.get<std::string>() : dump(name, -1)) << '\n';
      }
      return true;
  }
  return false;
}

std::string Fixed(double value, int digits) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  char text[400];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits);
  return std::string(text, end.ptr);
}

std::string LossText(double loss, int digits) {
  if (std::abs(loss) < 1e6 || !std::isfinite(loss)) return Fixed(loss, digits);
  char text[32];
  std::snprintf(text, sizeof text, "%.3e", loss);
  return text;
}

std::string HumanSeconds(double seconds) {
  if (!(seconds >= 0)) return "-";
  if (seconds < 9.95) return Fixed(seconds, 1) + "s";
  const auto whole = static_cast<std::int64_t>(std::min(seconds + 0.5, 1e12));
  if (whole < 60) return std::to_string(whole) + "s";
  if (whole < 3600) return std::to_string(whole / 60) + "m " + TwoDigits(whole % 60) + "s";
  if (whole < 48 * 3600)
    return std::to_string(whole / 3600) + "h " + TwoDigits(whole % 3600 / 60) + "m";
  return std::to_string(whole / 86400) + "d " + TwoDigits(whole % 86400 / 3600) + "h";
}

std::string HumanBytes(std::uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  for (; amount >= 1024 && unit + 1 < std::size(kUnits); ++unit) amount /= 1024;
  return Fixed(amount, 1) + " " + std::string(kUnits[unit]);
}

std::string PreciseSeconds(double seconds) { return seconds < 0 ? "-" : Fixed(seconds, 2) + " s"; }

std::string LocalTime(std::int64_t unix_ms) {
  return unix_ms <= 0 ? "-" : Format(unix_ms, "%Y-%m-%d %H:%M:%S", /*utc=*/false);
}

std::string LocalClock(std::int64_t unix_ms) {
  return unix_ms <= 0 ? "-" : Format(unix_ms, "%H:%M:%S", /*utc=*/false);
}

std::string IsoTime(std::int64_t unix_ms) {
  const std::string millis = std::to_string(1000 + unix_ms % 1000).substr(1);
  return Format(unix_ms, "%Y-%m-%dT%H:%M:%S.", /*utc=*/true) + millis + "Z";
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json TimeOrNull(std::int64_t unix_ms) {
  return unix_ms > 0 ? Json(IsoTime(unix_ms)) : Json(nullptr);
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const std::size_t length = Utf8Length(text);
    const bool c1 = length == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
    if (first == '\t')
      out += ' ';
    else if (length == 0 || c1 || first < 0x20 || first == 0x7f)
      out += '?';
    else
      out += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

}  // namespace muster
