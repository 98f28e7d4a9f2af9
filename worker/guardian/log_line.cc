#include "worker/guardian/log_line.h"

#include <cstdio>
#include <ctime>

#include "common/base/clock.h"

namespace muster {

void LogLine(const std::string& text) {
  const std::int64_t unix_ms = SystemClock().UnixMillis();
  const std::time_t seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%F %T", &local);
  std::fprintf(stderr, "%s.%03d guardian: %s\n", stamp, static_cast<int>(unix_ms % 1000),
               text.c_str());
}

}  // namespace muster
