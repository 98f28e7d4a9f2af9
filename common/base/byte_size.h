// Sizes of files as people write them.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

// "5GB" (decimal: KB, MB, GB, TB), "512MiB" (binary: KiB, MiB, GiB, TiB), "1.5GB", or bytes; case
// does not count. At least one byte and no more than 63 bits hold, else nothing.
std::optional<std::int64_t> ParseByteSize(std::string_view text);

inline constexpr char kByteSizeExpected[] = "a size such as 5GB, 512MiB or a number of bytes";

// "5 GB", "1.5 GB", "512 MB", "17 B": decimal, three digits.
std::string FormatByteSize(std::int64_t bytes);

}  // namespace muster
