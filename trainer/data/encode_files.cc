#include "trainer/data/encode_files.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "trainer/data/row_reader.h"

namespace muster {
namespace {

// Chunks read ahead, per thread: so that none waits while the caller writes.
constexpr std::size_t kChunksPerThread = 4;

struct Chunk {
  int file = 0;
  std::vector<RawRow> rows;
  // Made by the worker:
  EncodedRows encoded;
  Status status;
  bool done = false;
};

Status EncodeChunk(const std::vector<std::string>& paths, RowEncoder& encoder, Chunk* chunk) {
  for (const RawRow& row : chunk->rows) {
    const Status status = encoder.Encode(row.text, {chunk->file, row.line}, &chunk->encoded);
    if (!status.ok())
      return status.WithContext(paths[static_cast<std::size_t>(chunk->file)] + ":" +
                                std::to_string(row.line));
  }
  return OkStatus();
}

// Workers that take chunks in turn, and the chunks, which leave in the order in which they came.
class EncodingPool {
 public:
  EncodingPool(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
               const TextOptions& options, int threads)
      : paths_(paths), options_(options) {
    for (int i = 0; i < threads; ++i)
      workers_.emplace_back([this, mine = tokenizer.Share()] { Work(mine); });
  }
  EncodingPool(const EncodingPool&) = delete;
  EncodingPool& operator=(const EncodingPool&) = delete;
  ~EncodingPool() {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  bool full() const { return chunks_.size() >= kChunksPerThread * workers_.size(); }
  bool empty() const { return chunks_.empty(); }

  void Add(std::shared_ptr<Chunk> chunk) {
    chunks_.push_back(chunk);
    {
      std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(chunk));
    }
    changed_.notify_one();
  }

  // The oldest chunk, once it is encoded: a worker has it in hand, so that it ends. Precondition:
  // not empty.
  std::shared_ptr<Chunk> TakeOldest() {
    std::shared_ptr<Chunk> oldest = std::move(chunks_.front());
    chunks_.pop_front();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return oldest->done; });
    return oldest;
  }

 private:
  void Work(const Tokenizer& tokenizer) {
    RowEncoder encoder(tokenizer, options_);
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
      if (ending_) return;
      const std::shared_ptr<Chunk> chunk = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      try {
        chunk->status = EncodeChunk(paths_, encoder, chunk.get());
      } catch (const std::exception& error) {
        chunk->status = Internal(paths_[static_cast<std::size_t>(chunk->file)] + ":" +
                                 std::to_string(chunk->rows.front().line) + ": " + error.what());
      }
      lock.lock();
      chunk->done = true;
      done_.notify_one();
    }
  }

  const std::vector<std::string>& paths_;
  const TextOptions& options_;
  std::deque<std::shared_ptr<Chunk>> chunks_;  // not taken yet; the caller's
  std::mutex mutex_;
  std::condition_variable changed_;  // there is a chunk to encode, or the end has come
  std::condition_variable done_;     // a chunk is encoded
  std::deque<std::shared_ptr<Chunk>> waiting_;
  bool ending_ = false;
  std::vector<std::thread> workers_;
};

// The chunks of all files, one after the other.
class ChunkReader {
 public:
  explicit ChunkReader(const std::vector<std::string>& paths) : paths_(paths) {}

  // Null: there are no more, or status() says why they cannot be read.
  std::shared_ptr<Chunk> Next() {
    auto chunk = std::make_shared<Chunk>();
    std::size_t bytes = 0;
    while (chunk->rows.size() < kChunkRows && bytes < kChunkBytes && Open()) {
      chunk->file = static_cast<int>(file_);
      RawRow row;
      const Result<bool> any = reader_->Next(&row);
      if (any.ok() && *any) {
        bytes += row.text.size();
        chunk->rows.push_back(std::move(row));
        continue;
      }
      status_ = any.status();
      reader_.reset();
      ++file_;
      // A chunk is of one file.
      if (!chunk->rows.empty()) break;
    }
    if (chunk->rows.empty()) chunk.reset();
    return chunk;
  }
  const Status& status() const { return status_; }

 private:
  // Whether there is a file to read from.
  bool Open() {
    if (!status_.ok() || file_ == paths_.size()) return false;
    if (reader_) return true;
    auto reader = RowReader::Open(paths_[file_]);
    status_ = reader.status();
    if (reader.ok()) reader_ = *std::move(reader);
    return reader.ok();
  }

  const std::vector<std::string>& paths_;
  std::size_t file_ = 0;
  std::unique_ptr<RowReader> reader_;
  Status status_;
};

}  // namespace

Status EncodeFiles(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                   const TextOptions& options, const EncodeRun& run,
                   const std::function<Status(const EncodedRows&)>& take) {
  EncodingPool pool(paths, tokenizer, options, std::max(1, run.threads));
  ChunkReader reader(paths);
  std::int64_t rows = 0;
  for (bool more = true; more || !pool.empty();) {
    while (more && !pool.full()) {
      std::shared_ptr<Chunk> chunk = reader.Next();
      more = chunk != nullptr;
      if (more) pool.Add(std::move(chunk));
    }
    if (pool.empty()) break;
    const std::shared_ptr<Chunk> oldest = pool.TakeOldest();
    MUSTER_RETURN_IF_ERROR(oldest->status);
    MUSTER_RETURN_IF_ERROR(take(oldest->encoded));
    rows += static_cast<std::int64_t>(oldest->rows.size());
    if (run.on_rows) run.on_rows(rows);
  }
  // What stands before the place where reading failed may be wrong too, and came first.
  return reader.status();
}

}  // namespace muster
