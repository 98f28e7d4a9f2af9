// The frame of a shard file: where its header, data and checksums lie, and whether they are intact.
//
//   0            preamble: magic, version, sizes
//                JSON header, zeros up to a multiple of 4096
//   data_begin   data in pieces of piece_bytes; its length is a multiple of 4096
//   table_begin  XXH3-64 of every piece, zeros up to a multiple of 4096
//
// The checksum of a shard is the XXH3-64 of all that is not data: a reader of a part of the data
// checks the table once and then only the pieces that he touches. Everything begins at a multiple
// of 4096 bytes, so that files can be written and verified past the page cache. Version 1 had
// neither pieces nor a table; its checksum is over the whole file. docs/checkpoint-format.md
// describes both. What the header says is the trainer's business (trainer/state/checkpoint); a
// worker verifies shards by the frame alone.
//
// Values and free functions; any thread. Those that take a path or a descriptor block on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/base/version_table.h"

namespace muster {

inline constexpr std::size_t kShardBlock = 4096;
inline constexpr std::uint32_t kShardPieceBytes = 1 << 20;
// Of version 2; the first 24 bytes are those of version 1.
inline constexpr std::size_t kShardPreambleBytes = 40;

struct ShardFrame {
  std::uint32_t version = kShards.max;
  std::uint32_t piece_bytes = kShardPieceBytes;  // 0 in version 1
  std::uint64_t header_begin = kShardPreambleBytes;
  std::uint64_t header_bytes = 0;  // of the JSON text
  std::uint64_t data_begin = 0;
  std::uint64_t data_bytes = 0;

  // Of `header_bytes` and at least `data_bytes`.
  static ShardFrame Make(std::uint64_t header_bytes, std::uint64_t data_bytes);
  std::uint64_t pieces() const;  // 0 in version 1
  std::uint64_t table_begin() const { return data_begin + data_bytes; }
  std::uint64_t table_bytes() const;
  std::uint64_t file_bytes() const { return table_begin() + table_bytes(); }
};

// Preamble, `json` and the zeros behind it: the first frame.data_begin bytes of a file.
std::string EncodeShardHead(const ShardFrame& frame, std::string_view json);
// From the first bytes of a file, as many as there are up to kShardPreambleBytes. kDataLoss for
// anything else than a shard of a known version whose parts add up to `file_bytes`.
Result<ShardFrame> DecodeShardFrame(std::string_view preamble, std::uint64_t file_bytes);

std::uint64_t PieceChecksum(const void* data, std::size_t bytes);
// "xxh3-tree:" and 16 hexadecimal digits, over head and table.
std::string ShardChecksum(std::string_view head, std::string_view table);

// A shard opened for reading.
struct OpenedShard {
  UniqueFd fd;
  std::uint64_t file_bytes = 0;
  ShardFrame frame;
};
// `manifest_bytes`: the size that the manifest gives, where one does. kNotFound; kDataLoss for what
// is no shard or has another size; other codes where the file system fails. Messages name `path`.
Result<OpenedShard> OpenShard(const std::string& path,
                              std::optional<std::uint64_t> manifest_bytes = std::nullopt,
                              int* error = nullptr);
// pread of exactly `bytes`; kDataLoss where the file ends before. `error`, here and above, gets the
// errno of what failed in the file system and stays as it is otherwise.
Status ReadShardBytes(int fd, void* data, std::uint64_t bytes, std::uint64_t offset,
                      const std::string& path, int* error = nullptr);

// What a manifest says of a shard.
struct ExpectedShard {
  std::string path;
  std::uint64_t bytes = 0;
  std::string checksum;
};
// Reads every byte from the disk, not from the page cache, and compares. kNotFound or kDataLoss say
// that the shard is of no use; other codes say nothing about it (no permission, no descriptors).
Status VerifyShardFile(const ExpectedShard& expected);
// For readers that must not be in the way, and must distinguish damage from a disk that fails (EIO
// is kDataLoss too).
struct VerifyOptions {
  std::function<Status(std::uint64_t bytes)> before_read;  // may wait; not OK: ends it with this
  int* error = nullptr;                                    // as of ReadShardBytes
};
Status VerifyShardFile(const ExpectedShard& expected, const VerifyOptions& options);

struct FreeDeleter {
  void operator()(void* memory) const;
};
// Memory at a multiple of kShardBlock, for reads and writes past the page cache.
using BlockBuffer = std::unique_ptr<char, FreeDeleter>;
BlockBuffer MakeBlockBuffer(std::size_t bytes);

}  // namespace muster
