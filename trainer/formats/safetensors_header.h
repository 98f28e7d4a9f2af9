// The header of a safetensors file: eight bytes of length, then a JSON object that gives every
// tensor its type, shape and interval of the data that follows.
//
// Private to safetensors_{model,writer}.cc. Free functions; any thread.
// Errors: kDataLoss for a file shorter than it claims, kInvalidArgument for a malformed header.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/core/element_type.h"
#include "trainer/formats/safetensors.h"

namespace muster {

struct SafetensorsHeader {
  struct Tensor {
    TensorSpec spec;
    std::int64_t begin = 0;  // bytes from the start of the data
    std::int64_t end = 0;
  };

  std::vector<Tensor> tensors;  // by begin: they cover the data without holes or overlaps
  std::map<std::string, std::string> metadata;
  std::int64_t data_begin = 0;  // bytes from the start of the file
};

// Reads and checks the header of the open file `fd`. `path` names it in errors.
Result<SafetensorsHeader> ReadSafetensorsHeader(int fd, const std::string& path);

// Checks the JSON text of a header in front of `data_bytes` bytes of data.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, std::int64_t data_bytes,
                                                 const std::string& path);

// The first bytes of a file with these tensors one after the other: length and JSON, padded with
// blanks so that the data begins at a multiple of eight.
std::string FormatSafetensorsHeader(const std::vector<TensorSpec>& tensors,
                                    const std::map<std::string, std::string>& metadata);

// In memory, of BF16 or F16.
inline ElementType HalfType(TensorType type) {
  return type == TensorType::kBF16 ? ElementType::kBFloat16 : ElementType::kFloat16;
}

// pread of exactly `count` bytes at `offset`; kDataLoss where the file ends before.
Status ReadExactly(int fd, char* out, std::int64_t count, std::int64_t offset,
                   const std::string& path);

}  // namespace muster
