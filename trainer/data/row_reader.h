// RowReader: the rows of a file of text, one after the other, as they stand in it.
//
//   .jsonl          a row per line; blank lines are none
//   .json           an array of rows, or rows without anything between; each may take many lines
//   with .gz after  the same, compressed
//
// Holds one row and a buffer, whatever the size of the file. Owned by one thread. Errors name file
// and line: a file that cannot be read, a row that is too long, an array that is cut off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/result.h"

namespace muster {

struct RawRow {
  std::string text;
  std::int64_t line = 0;  // that it begins on, from 1
};

inline constexpr std::size_t kMaxRowBytes = 256u << 20;

class RowReader {
 public:
  // A row of more than `max_row_bytes` is kInvalidArgument.
  static Result<std::unique_ptr<RowReader>> Open(const std::string& path,
                                                 std::size_t max_row_bytes = kMaxRowBytes);
  virtual ~RowReader() = default;

  // False: there are no more.
  virtual Result<bool> Next(RawRow* row) = 0;
};

}  // namespace muster
