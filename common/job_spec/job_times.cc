#include "common/job_spec/job_times.h"

#include <charconv>
#include <ctime>
#include <utility>

#include "common/base/wall_time.h"

namespace muster {
namespace {

constexpr std::string_view kNow = "now";

// Nothing for a local time that the zone's clocks skip, or that is before 1970.
std::optional<std::int64_t> UnixMsOfLocal(const CivilTime& local) {
  tm parts{};
  parts.tm_year = local.year - 1900;
  parts.tm_mon = local.month - 1;
  parts.tm_mday = local.day;
  parts.tm_hour = local.hour;
  parts.tm_min = local.minute;
  parts.tm_sec = local.second;
  parts.tm_isdst = -1;
  const time_t seconds = ::mktime(&parts);
  if (seconds < 0) return std::nullopt;
  return std::int64_t{seconds} * 1000;
}

std::optional<std::int64_t> Resolve(std::string_view begin, std::int64_t now_unix_ms) {
  if (begin == kNow) return now_unix_ms;
  if (IsRelativeBegin(begin)) {
    const std::optional<std::int64_t> span = ParseSeconds(begin.substr(kNow.size() + 1));
    if (!span) return std::nullopt;
    return now_unix_ms + *span * 1000;
  }
  if (const std::optional<std::int64_t> time = ParseRfc3339(begin)) return time;
  const std::optional<CivilTime> local = TakeCivilTime(&begin);
  if (!local || !begin.empty()) return std::nullopt;
  return UnixMsOfLocal(*local);
}

}  // namespace

std::optional<std::int64_t> ParseSeconds(std::string_view text) {
  std::int64_t total = 0;
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    std::int64_t amount = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), amount);
    if (result.ec != std::errc() || result.ptr == text.data() + text.size() || amount < 0)
      return std::nullopt;
    std::int64_t unit = 0;
    switch (*result.ptr) {
      case 's': unit = 1; break;
      case 'm': unit = 60; break;
      case 'h': unit = 3600; break;
      case 'd': unit = 86400; break;
      default: return std::nullopt;
    }
    if (amount > kMaxSpanSeconds) return std::nullopt;
    total += amount * unit;
    if (total > kMaxSpanSeconds) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()) + 1);
  }
  return total;
}

std::string SpanText(std::int64_t seconds) {
  if (seconds == 0) return "0s";
  std::string text;
  for (const auto& [unit, letter] :
       {std::pair<std::int64_t, char>{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}}) {
    if (seconds >= unit) text += std::to_string(seconds / unit) + letter;
    seconds %= unit;
  }
  return text;
}

std::string LimitText(std::int64_t seconds) { return seconds == 0 ? "none" : SpanText(seconds); }

bool IsRelativeBegin(std::string_view begin) {
  return begin == kNow || (begin.starts_with(kNow) && begin.substr(kNow.size()).starts_with('+'));
}

Result<std::int64_t> ResolveBegin(std::string_view begin, std::int64_t now_unix_ms) {
  if (const std::optional<std::int64_t> time = Resolve(begin, now_unix_ms)) return *time;
  return InvalidArgument(
      "expected a time such as 2026-11-28T06:00 (local), 2026-11-28T05:00:00Z, "
      "2026-11-28 or now+2h, got '" +
      std::string(begin.substr(0, 60)) + "'");
}

}  // namespace muster
