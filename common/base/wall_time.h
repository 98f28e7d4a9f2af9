// Points in time of the wall clock, as texts.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

// "2026-11-21 03:42:10 UTC", for people.
std::string UtcTime(std::int64_t unix_ms);

// "2026-11-21T03:42:10Z", for files; parts of a second are dropped.
std::string Rfc3339(std::int64_t unix_ms);

// "2026-11-21T03:42:10Z", "2026-11-21T04:42:10.5+01:00", from 1970 to 9999; else nothing.
std::optional<std::int64_t> ParseRfc3339(std::string_view text);

// A date of the calendar and a time of the day, without a zone.
struct CivilTime {
  int year = 1970;
  int month = 1;  // 1 to 12
  int day = 1;
  int hour = 0;
  int minute = 0;
  int second = 0;
};

// Takes "2026-11-21", or "2026-11-21T03:42" with or without ":10", off the front of `text`; nothing
// if it does not begin with one that exists.
std::optional<CivilTime> TakeCivilTime(std::string_view* text);

}  // namespace muster
