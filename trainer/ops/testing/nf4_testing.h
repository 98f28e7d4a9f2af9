// What bitsandbytes made of some values, as tests/golden/make_nf4_golden.py writes it, and how our
// bytes differ from that.
//
// A file holds, little-endian and without gaps: int64 count; fp32 values [count]; uint8 codes
// [(count + 1) / 2]; fp32 absmax [blocks of 64]; fp32 offset; uint8 absmax codes [blocks of 64];
// fp32 nested absmax [blocks of 64 * 256]; fp32 nested code book [256]; fp32 values that were read
// back from the doubly quantised tensor [count].
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace muster {

// Bytes that differ. NaN is equal to NaN.
struct Nf4Differences {
  std::int64_t values = 0;  // how many were compared, not a difference
  std::int64_t codes = 0;
  std::int64_t absmax = 0;
  std::int64_t offset = 0;
  std::int64_t absmax_codes = 0;
  std::int64_t nested_absmax = 0;
  std::int64_t nested_code = 0;
  std::int64_t read_back = 0;

  std::int64_t total() const {
    return codes + absmax + offset + absmax_codes + nested_absmax + nested_code + read_back;
  }
};

Result<Nf4Differences> CompareNf4(const std::string& path);

}  // namespace muster
