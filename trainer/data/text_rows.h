// LoadTextRows: the rows of files of text, tokenized now or at an earlier start.
//
// With a cache the rows are tokenized once, by one of the ranks and jobs that want them; the others
// that see the same disk wait for it as long as it gets on (file_turn.h, cache_folder.h). What a
// cache cannot do (a full or read-only disk) is reported in a note, and the rows are kept in memory
// instead.
//
// Blocks; the calls below come in the caller's thread. Errors are those of the rows, with file and
// line.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "trainer/data/dataset.h"
#include "trainer/data/file_turn.h"
#include "trainer/data/row_encoder.h"

namespace muster {

struct TextRowsRun {
  std::string cache_dir;               // empty: no cache
  int cache_threads = 1;               // to tokenize with while others wait for the entry
  int threads = 1;                     // where every rank tokenizes for itself
  std::function<void()> on_read = {};  // something moves; may be empty
  // Another process does the work, moving or not; every few milliseconds. It may take as long as it
  // likes, because that time does not count against `timeout`.
  std::function<void()> on_wait = {};
  std::function<void(std::int64_t rows)> on_rows = {};  // tokenized so far by this process
  Duration timeout = TurnWait{}.timeout;                // with another's writing that stands still
};

struct TextRows {
  std::unique_ptr<const Dataset> dataset;
  std::vector<std::string> notes;  // for people: what the cache could not do
};

Result<TextRows> LoadTextRows(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                              const TextOptions& options, const TextRowsRun& run);

}  // namespace muster
