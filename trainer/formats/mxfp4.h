// MXFP4: weights of four bits, 32 of them with one scale.
//
// Format: the OCP Microscaling Formats specification 1.0. An element is a sign and one of 0, 0.5,
// 1, 1.5, 2, 3, 4 and 6 (E2M1); a scale is an exponent of two, less 127 (E8M0). In files of gpt-oss
// a block's codes are 16 bytes, the earlier element in the lower half, and scales are a tensor of
// their own.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

inline constexpr std::int64_t kMxfp4Block = 32;  // elements
inline constexpr std::int64_t kMxfp4Bytes = 16;  // of their codes

// values [blocks * 32] of codes [blocks * 16] and scales [blocks]. A scale of 255 means no number.
void DequantizeMxfp4(const void* codes, const void* scales, std::int64_t blocks, float* values);

// What quantising has changed: sums of squares.
struct Mxfp4Error {
  double errors = 0;
  double values = 0;
};
// For people: the root of the quotient.
std::string ErrorText(const Mxfp4Error& error);

// The other way, to the nearest, ties to the even code. A block's scale is that of the two whose
// squared errors add up to less: the largest with which its largest value needs the largest codes,
// 4 or 6, and the next. What MXFP4 can hold it keeps exactly. Values are finite; sums are added to.
void QuantizeMxfp4(const float* values, std::int64_t blocks, void* codes, void* scales,
                   Mxfp4Error* error);

}  // namespace muster
