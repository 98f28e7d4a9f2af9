// EncodeFiles: files of text as rows of token ids, with as many threads as one asks for.
//
// The caller's thread reads and hands the rows out, in the files' order whatever the number of
// threads; workers parse and encode chunks of rows. Chunks under way are bounded, so that memory
// does not grow with the files. Blocks until done; the threads are gone when it returns.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/encoded_rows.h"
#include "trainer/data/row_encoder.h"

namespace muster {

struct EncodeRun {
  int threads = 1;  // that encode, beside the caller's
  // Called after each chunk, in the caller's thread, with the rows of text read by then; may be
  // empty.
  std::function<void(std::int64_t rows)> on_rows = {};
};

// A chunk has so many rows of text, or ends with the one that makes it so many bytes long.
inline constexpr std::size_t kChunkRows = 256;
inline constexpr std::size_t kChunkBytes = 1 << 20;

// `take` gets the chunks in order, and may end everything with an error. The
// first of several bad rows is reported, with file and line.
Status EncodeFiles(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                   const TextOptions& options, const EncodeRun& run,
                   const std::function<Status(const EncodedRows&)>& take);

}  // namespace muster
