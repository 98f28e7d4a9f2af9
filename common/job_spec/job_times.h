// The durations and times of a job file: `time_limit`, `begin`.
//
// ResolveBegin reads the time zone of the process; the rest is pure. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace muster {

// A century; longer ones are no durations of a job file.
inline constexpr std::int64_t kMaxSpanSeconds = std::int64_t{36'500} * 86'400;

// "1h30m", "90m", "30s", "2d": seconds, up to kMaxSpanSeconds; else nothing.
std::optional<std::int64_t> ParseSeconds(std::string_view text);

// The same text for the same length: "2d", "1h30m", "90s" as "1m30s".
std::string SpanText(std::int64_t seconds);
// The same for a limit: "none" for 0.
std::string LimitText(std::int64_t seconds);

// "now", "now+2h": another time at each call.
bool IsRelativeBegin(std::string_view begin);

// The time, in Unix milliseconds, that a `begin` means: one of RFC 3339, a date or a time of the
// day in the local zone ("2026-11-28", "2026-11-28T06:00"), or one counted from `now_unix_ms`
// ("now+2h"). kInvalidArgument says which forms there are.
Result<std::int64_t> ResolveBegin(std::string_view begin, std::int64_t now_unix_ms);

}  // namespace muster
