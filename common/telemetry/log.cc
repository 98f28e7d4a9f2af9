#include "common/telemetry/log.h"

#include <spdlog/sinks/stdout_sinks.h>

namespace muster {

void InitLogging(const std::string& program, const std::string& level) {
  auto logger =
      std::make_shared<spdlog::logger>(program, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %n %v");
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace muster
