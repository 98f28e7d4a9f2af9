// How results are shown: tables for people, JSON and YAML for programs.
//
// A command builds its data once as JSON (job_json.h) and, for people, as a Table; Print* chooses
// by the format. Pure apart from writing to the given stream; one thread.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace muster {

using Json = nlohmann::ordered_json;

enum class OutputFormat { kTable, kWide, kJson, kJsonl, kYaml, kName };
inline constexpr std::string_view kOutputFormats[] = {"table", "wide", "json",
                                                      "jsonl", "yaml", "name"};

// Where output goes and what the reader of it can show.
struct Terminal {
  std::ostream& out;
  std::ostream& err;
  bool out_is_tty = false;
  bool color = false;  // never when NO_COLOR is set, TERM is dumb or `out` is no terminal
  int columns = 80;    // of `out`, or where that is no terminal of `err`
  bool err_is_tty = false;
};

class Table {
 public:
  explicit Table(std::vector<std::string> headers) : headers_(std::move(headers)) {}
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Left-aligned columns two spaces apart, no trailing blanks; states are coloured where allowed.
  void Print(std::ostream& out, bool color) const;

 private:
  std::vector<std::string> headers_;
  std::vector<std::vector<std::string>> rows_;
};

// Block style YAML of a JSON value.
std::string ToYaml(const Json& value);

// Writes `value` as JSON, JSON lines (one per element of an array), YAML, or names (each element's
// `name_key`). False for the two table formats, which are the caller's.
bool PrintStructured(std::ostream& out, OutputFormat format, const Json& value,
                     const std::string& name_key);

// "1m 05s", "2h 03m", "0.4s"; "-" for negative seconds.
std::string HumanSeconds(double seconds);
// For recovery stages: "0.31 s".
std::string PreciseSeconds(double seconds);
// "512 B", "1.5 KiB", "3.2 GiB".
std::string HumanBytes(std::uint64_t bytes);
// "2026-11-21 03:42:10" in local time; "-" for 0.
std::string LocalTime(std::int64_t unix_ms);
std::string LocalClock(std::int64_t unix_ms);  // "03:42:10"
// "2026-11-21T03:42:10.123Z"
std::string IsoTime(std::int64_t unix_ms);
// Unknown values in JSON and in tables: null for "" and for 0, "-" for "".
Json TextOrNull(const std::string& text);
Json TimeOrNull(std::int64_t unix_ms);
std::string OrDash(const std::string& text);
// printf's %.*f without its buffers.
std::string Fixed(double value, int digits);
// The same, short for a loss that has run away: "1.000e+30".
std::string LossText(double loss, int digits);
// Without what could command a terminal: controls, bytes that are no character; a tab is a space.
std::string Printable(std::string_view text);

}  // namespace muster
