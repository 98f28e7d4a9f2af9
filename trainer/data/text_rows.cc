#include "trainer/data/text_rows.h"

#include <unistd.h>

#include <utility>

#include "common/base/files.h"
#include "trainer/data/cache_folder.h"
#include "trainer/data/cache_key.h"
#include "trainer/data/content_hashes.h"
#include "trainer/data/encode_files.h"
#include "trainer/data/file_identity.h"
#include "trainer/data/file_turn.h"
#include "trainer/data/text_dataset.h"
#include "trainer/data/token_cache.h"
#include "trainer/data/verified_mark.h"

namespace muster {
namespace {

// An entry that is damaged again and again lies on a disk that keeps nothing.
constexpr int kMostTries = 4;
// Of rows that change while they are read.
constexpr int kMostChanges = 3;

// What may happen to one entry of the cache until it can be used.
class Entry {
 public:
  Entry(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
        const TextOptions& options, const TextRowsRun& run)
      : paths_(paths),
        files_(HashOfPaths(paths)),
        tokenizer_(tokenizer),
        options_(options),
        run_(run),
        wait_{.on_read = run.on_read, .on_wait = run.on_wait, .timeout = run.timeout} {}

  // Null: the cache is of no use, and trouble() says why. An error is one of the rows; kAborted:
  // their files have changed meanwhile.
  Result<std::unique_ptr<const Dataset>> Load(std::vector<std::string>* notes) {
    MUSTER_RETURN_IF_ERROR(FindKey());
    for (int tries = 0; tries < kMostTries; ++tries) {
      const Result<FileIdentity> examined = IdentityOf(path_);
      auto opened = OpenVerified();
      if (opened.ok()) return std::unique_ptr<const Dataset>(*std::move(opened));
      trouble_ = opened.status();
      if (trouble_.code() == StatusCode::kDataLoss) {
        notes->push_back(trouble_.message() + "; it is created again");
        RemoveDamaged(examined);
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
  Status FindKey() {
    // Whether it can be made is asked when something is to be written to it.
    (void)MakeDirectories(run_.cache_dir);
    const HashMemory memory{.path = HashMemoryPath(run_.cache_dir, files_)};
    MUSTER_ASSIGN_OR_RETURN(rows_, HashFiles(paths_, memory, wait_));
    MUSTER_ASSIGN_OR_RETURN(key_, CacheKey(rows_, options_));
    path_ = run_.cache_dir + "/" + CacheEntryName(key_);
    return OkStatus();
  }

  // An entry every byte of which was checked, by this process or another one of this host.
  Result<std::unique_ptr<const CachedDataset>> OpenVerified() {
    MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<const CachedDataset> entry,
                            CachedDataset::Open(path_, key_, options_.vocab_size, paths_));
    const VerifiedMark mark(path_);
    const auto is_verified = [&] { return mark.Holds(entry->identity()); };
    if (is_verified()) return entry;
    Result<FileTurn> turn = FileTurn::Open(mark.path() + ".lock");
    if (turn.ok() && turn->Await(is_verified, wait_) == Turn::kDone) return entry;
    if (!entry->Check().ok()) return NotFound(path_ + " was removed by another process");
    MUSTER_RETURN_IF_ERROR(entry->Verify([&] {
      if (turn.ok()) turn->Touch();
      if (run_.on_read) run_.on_read();
    }));
    mark.Set(entry->identity());
    return entry;
  }

  // Unless another process has made it anew meanwhile.
  void RemoveDamaged(const Result<FileIdentity>& examined) const {
    const Result<FileIdentity> now = IdentityOf(path_);
    if (examined.ok() && now.ok() && now->device == examined->device &&
        now->inode == examined->inode)
      ::unlink(path_.c_str());
  }

  // What was tokenized has to be what the key is of.
  Status CheckSources() const {
    // Times may change without the bytes, as when a backup sets them back.
    if (!CheckUnchanged(rows_).ok()) {
      MUSTER_ASSIGN_OR_RETURN(const std::vector<FileContent> now, HashFiles(paths_, {}, wait_));
      for (std::size_t i = 0; i < now.size(); ++i)
        if (now[i].hash != rows_[i].hash)
          return Aborted(now[i].path + " has changed while its rows were tokenized");
    }
    const Result<std::uint64_t> key = CacheKey(rows_, options_);
    if (key.ok() && *key == key_) return OkStatus();
    return Unavailable("the files of the tokenizer or the chat template, " + options_.model_dir +
                       ", have changed while rows were tokenized");
  }

  // False: it could not be written, for trouble(). True: a process has written it.
  Result<bool> WriteOrAwait() {
    trouble_ = MakeDirectories(run_.cache_dir);
    if (!trouble_.ok()) return false;
    // Where who has the turn stands still one more process takes over, and no more than one.
    for (const char* const suffix : {".lock", ".lock2"}) {
      Result<FileTurn> turn = FileTurn::Open(path_ + suffix);
      trouble_ = turn.status();
      if (!turn.ok()) return false;
      switch (turn->Await([this] { return IsThere(path_); }, wait_)) {
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
    auto writer = TokenCacheWriter::Create(path_, {.key = key_, .files = files_});
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
    // First, because a file that is being written to may end within a row.
    MUSTER_RETURN_IF_ERROR(CheckSources());
    MUSTER_RETURN_IF_ERROR(encoded);
    const DatasetStats& stats = (*writer)->stats();
    if (stats.rows == 0) return NoRowsLeft(paths_, stats, options_.max_seq_len);
    trouble_ = (*writer)->Finish(moves);
    if (trouble_.ok()) RemoveOldEntries(run_.cache_dir, files_);
    return OkStatus();
  }

  const std::vector<std::string>& paths_;
  const std::uint64_t files_;  // HashOfPaths
  const Tokenizer& tokenizer_;
  const TextOptions& options_;
  const TextRowsRun& run_;
  const TurnWait wait_;
  std::vector<FileContent> rows_;
  std::uint64_t key_ = 0;
  std::string path_;
  Status trouble_;
};

Result<TextRows> LoadOnce(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                          const TextOptions& options, const TextRowsRun& run) {
  TextRows rows;
  if (!run.cache_dir.empty()) {
    Entry entry(paths, tokenizer, options, run);
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

}  // namespace

Result<TextRows> LoadTextRows(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                              const TextOptions& options, const TextRowsRun& run) {
  for (int tries = 1;; ++tries) {
    Result<TextRows> rows = LoadOnce(paths, tokenizer, options, run);
    if (rows.ok() || rows.status().code() != StatusCode::kAborted) return rows;
    if (tries == kMostChanges)
      return Unavailable(rows.status().message() +
                         "; rows have to be written before a job starts that trains on them");
  }
}

}  // namespace muster
