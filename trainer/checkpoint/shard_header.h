// The header of a shard file as bytes: encoding, decoding and every check that needs no data.
//
//   0   8  magic "MUSTERSH"
//   8   4  format version, little-endian
//   12  4  zero
//   16  8  length of the JSON header in bytes
//   24     JSON header; then zeros up to the next multiple of 64, where the data begins
//
// Pure functions; shard_file.h does the reading and writing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/checkpoint/shard_file.h"

namespace muster {

inline constexpr std::size_t kShardPreambleBytes = 24;
inline constexpr std::size_t kShardAlignment = 64;
inline constexpr std::uint32_t kShardVersion = 1;

struct EncodedShardHeader {
  std::string text;                    // preamble, JSON and padding
  std::vector<std::uint64_t> offsets;  // of each array's data, from the start of the file
  std::uint64_t file_bytes = 0;
};
EncodedShardHeader EncodeShardHeader(const ShardHeader& header);

// The length of the JSON header that follows the preamble. kDataLoss for anything else than a
// shard of a known version that can lie in a file of `file_bytes`.
Result<std::size_t> DecodeShardPreamble(std::string_view preamble, std::uint64_t file_bytes);

struct DecodedShardHeader {
  ShardHeader header;
  std::vector<std::uint64_t> offsets;  // from the start of the file
};
// Trusts nothing: every array and interval lies within its bounds afterwards, and the arrays end
// where the file ends.
Result<DecodedShardHeader> DecodeShardHeader(std::string_view json, std::uint64_t file_bytes);

}  // namespace muster
