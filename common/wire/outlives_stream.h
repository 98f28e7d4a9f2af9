// OutlivesStream: whether a message waits for the worker's next stream if the present one ends
// before it is written. The others are dropped, because the next Hello restores their contents.
// Any thread.
#pragma once

#include <variant>

#include "common/wire/messages.h"

namespace muster {

inline bool OutlivesStream(const WorkerMessage& message) {
  if (const auto* prepared = std::get_if<Prepared>(&message)) return !prepared->error.empty();
  return std::holds_alternative<ManifestWritten>(message) ||
         std::holds_alternative<Released>(message);
}

}  // namespace muster
