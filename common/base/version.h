// The versions that a user and another process may ask for.
#pragma once

namespace muster {

inline constexpr char kVersion[] = "0.1.0";

// Of the worker stream and the client service. Raised when an older peer could misunderstand.
inline constexpr int kProtocolVersion = 1;

}  // namespace muster
