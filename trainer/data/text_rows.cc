#include "trainer/data/text_rows.h"

#include <unistd.h>

#include <utility>

#include "common/base/files.h"
#include "trainer/data/cache_folder.h"
#include "trainer/data/cache_key.h"
#include "trainer/data/encode_files.h"
#include "trainer/data/file_turn.h"
#include "trainer/data/text_dataset.h"
#include "trainer/data/token_cache.h"

namespace muster {
namespace {

// An entry that is damaged again and again lies on a disk that keeps nothing.
constexpr int kMostTries = 4;

TurnWait WaitOf(const TextRowsRun& run) {
  return {.on_read = run.on_read, .on_wait = run.on_wait, .patience = run.patience};
}

// What may happen to one entry of the cache until it can be used.
class Entry {
 public:
  Entry(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
        const TextOptions& options, const TextRowsRun& run, std::uint64_t key)
      : paths_(paths),
        tokenizer_(tokenizer),
        options_(options),
        run_(run),
        key_(key),
        path_(run.cache_dir + "/" + CacheEntryName(key)) {}

  // Null: the cache is of no use, and trouble() says why. An error is one of the rows.
  Result<std::unique_ptr<const Dataset>> Load(std::vector<std::string>* notes) {
    for (int tries = 0; tries < kMostTries; ++tries) {
      auto opened = CachedDataset::Open(path_, key_, options_.vocab_size, paths_, run_.on_read);
      if (opened.ok()) return std::unique_ptr<const Dataset>(*std::move(opened));
      trouble_ = opened.status();
      if (trouble_.code() == StatusCode::kDataLoss) {
        notes->push_back(trouble_.message() + "; it is made anew");
        ::unlink(path_.c_str());
      } else if (trouble_.code() != StatusCode::kNotFound) {
        break;
      }
      MUSTER_ASSIGN_OR_RETURN(const bool goes_on, WriteOrAwait());
      if (!goes_on) break;
    }
    return std::unique_ptr<const Dataset>();
  }

  const Status& trouble() const { return trouble_; }

 private:
  // False: it could not be written, for trouble(). True: somebody has written it.
  Result<bool> WriteOrAwait() {
    trouble_ = MakeDirectories(run_.cache_dir);
    if (!trouble_.ok()) return false;
    // Where who has the turn stands still one more process takes over, and no more than one.
    for (const char* const suffix : {".lock", ".lock2"}) {
      Result<FileTurn> turn = FileTurn::Open(path_ + suffix);
      trouble_ = turn.status();
      if (!turn.ok()) return false;
      switch (turn->Await([this] { return IsThere(path_); }, WaitOf(run_))) {
        case Turn::kDone: return true;
        case Turn::kStuck: continue;
        case Turn::kOwn: MUSTER_RETURN_IF_ERROR(Write(*turn)); return trouble_.ok();
      }
    }
    trouble_ = DeadlineExceeded("others that write " + path_ + " stand still");
    return false;
  }

  // OK with trouble(): the disk has not taken it.
  Status Write(const FileTurn& turn) {
    RemoveLeftovers(run_.cache_dir);
    trouble_ = CheckRoom(paths_, run_.cache_dir);
    if (!trouble_.ok()) return OkStatus();
    const std::uint64_t files = HashOfPaths(paths_);
    auto writer = TokenCacheWriter::Create(path_, {.key = key_, .files = files});
    trouble_ = writer.status();
    if (!writer.ok()) return OkStatus();
    const auto moves = [&] {
      turn.Touch();
      if (run_.on_read) run_.on_read();
    };
    const auto take = [&](const EncodedRows& rows) {
      trouble_ = (*writer)->Add(rows);
      turn.Touch();
      return trouble_;
    };
    const auto on_rows = [&](std::int64_t rows) {
      moves();
      if (run_.on_rows) run_.on_rows(rows);
    };
    const Status encoded =
        EncodeFiles(paths_, tokenizer_, options_, {run_.cache_threads, on_rows}, take);
    if (!trouble_.ok()) return OkStatus();
    MUSTER_RETURN_IF_ERROR(encoded);
    const DatasetStats& stats = (*writer)->stats();
    if (stats.rows == 0) return NoRowsLeft(paths_, stats, options_.max_seq_len);
    trouble_ = (*writer)->Finish(moves);
    if (trouble_.ok()) RemoveOldEntries(run_.cache_dir, files);
    return OkStatus();
  }

  const std::vector<std::string>& paths_;
  const Tokenizer& tokenizer_;
  const TextOptions& options_;
  const TextRowsRun& run_;
  const std::uint64_t key_;
  const std::string path_;
  Status trouble_;
};

}  // namespace

Result<TextRows> LoadTextRows(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                              const TextOptions& options, const TextRowsRun& run) {
  TextRows rows;
  if (!run.cache_dir.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const std::uint64_t key,
                            CacheKey(paths, options.model_dir, options, run.on_read));
    Entry entry(paths, tokenizer, options, run, key);
    MUSTER_ASSIGN_OR_RETURN(rows.dataset, entry.Load(&rows.notes));
    if (rows.dataset) return rows;
    rows.notes.push_back("the tokens are kept in memory instead of in " + run.cache_dir + ": " +
                         entry.trouble().message());
  }
  const auto on_rows = [&](std::int64_t count) {
    if (run.on_read) run.on_read();
    if (run.on_rows) run.on_rows(count);
  };
  MUSTER_ASSIGN_OR_RETURN(TextDataset dataset,
                          TextDataset::Load(paths, tokenizer, options, {run.threads, on_rows}));
  rows.dataset = std::make_unique<const TextDataset>(std::move(dataset));
  return rows;
}

}  // namespace muster
