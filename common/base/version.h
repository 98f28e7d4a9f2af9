// The versions that a user and another process may ask for.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

namespace muster {

inline constexpr char kVersion[] = "0.2.0";

// Versions of the protocol that a program speaks, both ends included.
struct ProtocolRange {
  int min = 0;
  int max = 0;
};

// Protocol versions that the worker stream and the client service speak. Raise max when an older
// peer could misunderstand a message; raise min when support for its last release ends.
inline constexpr ProtocolRange kProtocols{2, 2};
inline constexpr int kProtocolVersion = kProtocols.max;

// Returns the newest version that both sides speak, or nothing if they share none.
constexpr std::optional<int> CommonProtocol(ProtocolRange a, ProtocolRange b) {
  const int newest = std::min(a.max, b.max);
  return newest >= std::max(a.min, b.min) ? std::optional(newest) : std::nullopt;
}

// "protocol 2" or "protocols 1 to 2".
inline std::string ProtocolText(ProtocolRange range) {
  const std::string newest = std::to_string(range.max);
  return range.min == range.max ? "protocol " + newest
                                : "protocols " + std::to_string(range.min) + " to " + newest;
}

}  // namespace muster
