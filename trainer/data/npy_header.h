// The header of a .npy file: what array it holds and where its data begins.
//
// Format versions 1.0, 2.0 and 3.0 of NumPy: magic, version, length of the header, and the header
// as a Python dictionary of descr, fortran_order and shape. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster {

// A header longer than this is none that NumPy writes for an array of numbers.
inline constexpr std::size_t kMaxNpyHeaderBytes = 64 << 10;

struct NpyHeader {
  std::string descr;  // "<u2"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::int64_t data_begin = 0;  // bytes from the start of the file
};

// `start` is the file's beginning: all of it, or kMaxNpyHeaderBytes at least. Errors say what is
// wrong with the header; the caller adds the file.
Result<NpyHeader> ParseNpyHeader(std::string_view start);

}  // namespace muster
