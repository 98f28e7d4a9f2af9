// One rank's file of a sharded checkpoint: written durably, read piece by piece, each verified
// before a byte of it is used.
//
// docs/checkpoint-format.md describes the file. All calls block on the disk. WriteShard runs on the
// checkpointer's background thread; a ShardReader belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "common/base/result.h"
#include "common/checkpoint_format/shard_frame.h"
#include "trainer/state/checkpoint/checkpoint.h"
#include "trainer/state/checkpoint/shard_header.h"
#include "trainer/state/checkpoint/shard_image.h"

namespace muster {

// Writes `path` (temporary name, space reserved, fsync, rename, fsync of the directory) past the
// page cache where the file system can: training keeps its memory, and the fsync at the end has
// little left to do. kResourceExhausted when the disk is full: the temporary file is gone then and
// an older file of that name untouched. The record's `file` is the last part of `path`.
// `on_written` hears of every write, in this thread, with the bytes of the file so far.
Result<ShardRecord> WriteShard(const std::string& path, const ShardImage& image,
                               std::function<void(std::uint64_t)> on_written = {});

// Size and checksums of the file in `directory`, read from the disk, against what the manifest
// says. kNotFound, kDataLoss; the message names the file and what is wrong with it.
Status VerifyShard(const std::string& directory, const ShardRecord& record);

// Reads the header alone; of the checksums nothing is checked.
Result<ShardHeader> ReadShardHeader(const std::string& path);

// Pieces that were read and verified as a whole although only a part of them was wanted, so that
// neighbouring requests do not read them again. Bounded; shared by the readers of one checkpoint,
// which outlive it.
class PieceCache {
 public:
  struct Piece {
    const void* owner = nullptr;  // null: holds nothing
    std::uint64_t index = 0;
    std::size_t bytes = 0;
    BlockBuffer data;
  };
  // The piece, or null.
  const Piece* Find(const void* owner, std::uint64_t index) const;
  // The place of the oldest piece, emptied and with room for `bytes`; the caller that fills it
  // names it.
  Piece* Reuse(std::size_t bytes);

 private:
  std::array<Piece, 8> pieces_;
  std::size_t oldest_ = 0;
};

class ShardReader {
 public:
  // Checks size, head and table against `record` (of a shard of format version 1 every byte) and
  // that the header agrees with itself.
  static Result<ShardReader> Open(const std::string& directory, const ShardRecord& record);

  const std::string& path() const { return path_; }
  const ShardHeader& header() const { return decoded_.header; }
  const ShardPlaces& places() const { return decoded_.places; }

  // to[0 .. bytes) = data[begin .. begin + bytes), which lies within the data. kDataLoss when a
  // piece is damaged; `to` is undefined then.
  Status Read(std::uint64_t begin, std::uint64_t bytes, void* to, PieceCache* cache) const;

 private:
  ShardReader() = default;
  Status CheckPiece(std::uint64_t index, const void* data, std::uint64_t bytes) const;
  // Bytes of piece `index` as far as they are data.
  std::uint64_t PieceBytes(std::uint64_t index) const;
  Result<const char*> WholePiece(std::uint64_t index, PieceCache* cache) const;

  std::string path_;
  OpenedShard file_;
  std::string table_;
  DecodedShardHeader decoded_;
};

}  // namespace muster
