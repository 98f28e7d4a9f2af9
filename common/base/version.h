// The version that a user and another process may ask for, and the table of those of its messages
// and files.
#pragma once

#include "common/base/version_table.h"

namespace muster {

inline constexpr char kVersion[] = "0.2.0";
inline constexpr int kProtocolVersion = kProtocols.max;

}  // namespace muster
