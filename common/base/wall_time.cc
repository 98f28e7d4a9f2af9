#include "common/base/wall_time.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>

namespace muster {
namespace {

std::string Format(std::int64_t unix_ms, const char* form) {
  const time_t seconds = unix_ms / 1000;
  tm parts{};
  char text[64];
  if (::gmtime_r(&seconds, &parts) == nullptr || ::strftime(text, sizeof text, form, &parts) == 0)
    return std::to_string(seconds) + " s after 1970";
  return text;
}

// Takes `mark` and the digits behind it; nothing if they are not there.
std::optional<int> TakeNumber(std::string_view* text, std::string_view mark, std::size_t digits) {
  if (!text->starts_with(mark) || text->size() < mark.size() + digits) return std::nullopt;
  const std::string_view number = text->substr(mark.size(), digits);
  int value = 0;
  const auto end = std::from_chars(number.data(), number.data() + number.size(), value);
  if (end.ec != std::errc() || end.ptr != number.data() + number.size() || value < 0)
    return std::nullopt;
  text->remove_prefix(mark.size() + digits);
  return value;
}

bool Exists(const CivilTime& time) {
  using std::chrono::day, std::chrono::month, std::chrono::year;
  const std::chrono::year_month_day date(year(time.year), month(static_cast<unsigned>(time.month)),
                                         day(static_cast<unsigned>(time.day)));
  return date.ok() && time.year >= 1970 && time.hour < 24 && time.minute < 60 && time.second < 60;
}

// Takes ".250" off the front: 250. Digits behind the third are dropped.
std::optional<int> TakeMillis(std::string_view* text) {
  if (!text->starts_with('.')) return 0;
  const std::size_t end = std::min(text->find_first_not_of("0123456789", 1), text->size());
  if (end < 2) return std::nullopt;
  int millis = 0;
  for (std::size_t at = 1; at < 4; ++at) millis = millis * 10 + (at < end ? (*text)[at] - '0' : 0);
  text->remove_prefix(end);
  return millis;
}

// What "Z" or "+01:00", which must be all of `text`, is ahead of UTC.
std::optional<int> OffsetMinutes(std::string_view text) {
  if (text == "Z" || text == "z") return 0;
  const int sign = text.starts_with('-') ? -1 : 1;
  const std::string mark = sign < 0 ? "-" : "+";
  const std::optional<int> hours = TakeNumber(&text, mark, 2);
  const std::optional<int> minutes = TakeNumber(&text, ":", 2);
  if (!hours || !minutes || !text.empty() || *hours > 23 || *minutes > 59) return std::nullopt;
  return sign * (*hours * 60 + *minutes);
}

}  // namespace

std::string UtcTime(std::int64_t unix_ms) { return Format(unix_ms, "%Y-%m-%d %H:%M:%S UTC"); }

std::string Rfc3339(std::int64_t unix_ms) { return Format(unix_ms, "%Y-%m-%dT%H:%M:%SZ"); }

std::optional<CivilTime> TakeCivilTime(std::string_view* text) {
  std::string_view rest = *text;
  const std::optional<int> year = TakeNumber(&rest, "", 4);
  const std::optional<int> month = TakeNumber(&rest, "-", 2);
  const std::optional<int> day = TakeNumber(&rest, "-", 2);
  if (!year || !month || !day) return std::nullopt;
  CivilTime time{.year = *year, .month = *month, .day = *day};
  if (rest.starts_with('T') || rest.starts_with('t')) {
    const std::optional<int> hour = TakeNumber(&rest, rest.substr(0, 1), 2);
    const std::optional<int> minute = TakeNumber(&rest, ":", 2);
    if (!hour || !minute) return std::nullopt;
    time.hour = *hour;
    time.minute = *minute;
    if (rest.starts_with(':')) {
      const std::optional<int> second = TakeNumber(&rest, ":", 2);
      if (!second) return std::nullopt;
      time.second = *second;
    }
  }
  if (!Exists(time)) return std::nullopt;
  *text = rest;
  return time;
}

std::optional<std::int64_t> ParseRfc3339(std::string_view text) {
  constexpr std::size_t kWithSeconds = sizeof "2026-11-21T03:42:10" - 1;
  const std::size_t size = text.size();
  const std::optional<CivilTime> time = TakeCivilTime(&text);
  if (!time || size - text.size() != kWithSeconds) return std::nullopt;
  const std::optional<int> millis = TakeMillis(&text);
  const std::optional<int> offset = OffsetMinutes(text);
  if (!millis || !offset) return std::nullopt;
  tm parts{};
  parts.tm_year = time->year - 1900;
  parts.tm_mon = time->month - 1;
  parts.tm_mday = time->day;
  parts.tm_hour = time->hour;
  parts.tm_min = time->minute;
  parts.tm_sec = time->second;
  const std::int64_t seconds = std::int64_t{::timegm(&parts)} - std::int64_t{*offset} * 60;
  if (seconds < 0) return std::nullopt;
  return seconds * 1000 + *millis;
}

}  // namespace muster
