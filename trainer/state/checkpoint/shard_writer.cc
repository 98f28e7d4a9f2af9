#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/files.h"
#include "trainer/state/checkpoint/shard_file.h"

namespace muster {
namespace {

// Long enough for the disk, short enough to still lie in a cache when it is written after hashing.
constexpr std::uint64_t kWriteBytes = 4 * kShardPieceBytes;

// Writes blocks at growing offsets, past the page cache where the file system can.
class BlockWriter {
 public:
  static Result<BlockWriter> Create(const std::string& path,
                                    std::function<void(std::uint64_t)> on_written) {
    BlockWriter writer;
    writer.path_ = path;
    writer.on_written_ = std::move(on_written);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    writer.fd_.reset(::open(path.c_str(), kFlags | O_DIRECT, 0644));
    if (!writer.fd_.valid() && errno == EINVAL) {
      writer.direct_ = false;
      writer.fd_.reset(::open(path.c_str(), kFlags, 0644));
    }
    if (!writer.fd_.valid()) return ErrnoStatus(errno, "create " + path);
    return writer;
  }

  Status Reserve(std::uint64_t bytes) {
    if (::fallocate(fd_.get(), 0, 0, static_cast<off_t>(bytes)) == 0) return OkStatus();
    // Not everything that can be written to can; then a full disk shows while writing.
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == ENODEV) return OkStatus();
    return ErrnoStatus(errno, "reserve " + std::to_string(bytes) + " bytes for " + path_);
  }

  // `data` and `bytes` are multiples of a block.
  Status Write(const void* data, std::uint64_t bytes) {
    const char* at = static_cast<const char*>(data);
    const std::uint64_t begin = written_;
    while (bytes > 0) {
      const ssize_t n = ::pwrite(fd_.get(), at, bytes, static_cast<off_t>(written_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EINVAL && direct_) {
        // Some accept the flag and refuse the write, or a write that a short one left askew.
        direct_ = false;
        if (::fcntl(fd_.get(), F_SETFL, 0) == 0) continue;
      }
      if (n < 0) return ErrnoStatus(errno, "write " + path_);
      at += n;
      bytes -= static_cast<std::uint64_t>(n);
      written_ += static_cast<std::uint64_t>(n);
    }
    // Keeps the disk busy meanwhile and the fsync at the end short.
    if (!direct_) {
      (void)::sync_file_range(fd_.get(), static_cast<off_t>(begin),
                              static_cast<off_t>(written_ - begin), SYNC_FILE_RANGE_WRITE);
    }
    if (on_written_) on_written_(written_);
    return OkStatus();
  }

  Status Sync() {
    return ::fsync(fd_.get()) == 0 ? OkStatus() : ErrnoStatus(errno, "fsync " + path_);
  }
  std::uint64_t written() const { return written_; }

 private:
  std::string path_;
  UniqueFd fd_;
  bool direct_ = true;
  std::uint64_t written_ = 0;
  std::function<void(std::uint64_t)> on_written_;
};

// The checksum of every piece of the data, written as it goes along.
Status WriteData(const ShardImage& image, const ShardFrame& frame, char* table,
                 BlockWriter* writer) {
  const std::byte* data = image.data();
  for (std::uint64_t at = 0; at < frame.data_bytes; at += kWriteBytes) {
    const std::uint64_t end = std::min(at + kWriteBytes, frame.data_bytes);
    for (std::uint64_t piece = at; piece < end; piece += frame.piece_bytes) {
      const std::uint64_t checksum =
          PieceChecksum(data + piece, std::min<std::uint64_t>(frame.piece_bytes, end - piece));
      std::memcpy(table, &checksum, sizeof(checksum));
      table += sizeof(checksum);
    }
    MUSTER_RETURN_IF_ERROR(writer->Write(data + at, end - at));
  }
  return OkStatus();
}

Status WriteContent(const std::string& path, const ShardImage& image,
                    std::function<void(std::uint64_t)> on_written, ShardRecord* record) {
  const std::string json = ShardHeaderToJson(image.header());
  const ShardFrame frame = ShardFrame::Make(json.size(), image.bytes());
  MUSTER_CHECK(frame.data_bytes == image.bytes(), "an image is whole blocks");
  const std::string text = EncodeShardHead(frame, json);
  const BlockBuffer head = MakeBlockBuffer(text.size());
  std::memcpy(head.get(), text.data(), text.size());
  const BlockBuffer table = MakeBlockBuffer(frame.table_bytes());
  std::memset(table.get(), 0, frame.table_bytes());

  MUSTER_ASSIGN_OR_RETURN(BlockWriter writer, BlockWriter::Create(path, std::move(on_written)));
  MUSTER_RETURN_IF_ERROR(writer.Reserve(frame.file_bytes()));
  MUSTER_RETURN_IF_ERROR(writer.Write(head.get(), frame.data_begin));
  MUSTER_RETURN_IF_ERROR(WriteData(image, frame, table.get(), &writer));
  MUSTER_RETURN_IF_ERROR(writer.Write(table.get(), frame.table_bytes()));
  MUSTER_RETURN_IF_ERROR(writer.Sync());
  record->bytes = writer.written();
  record->checksum = ShardChecksum(text, {table.get(), frame.table_bytes()});
  return OkStatus();
}

}  // namespace

Result<ShardRecord> WriteShard(const std::string& path, const ShardImage& image,
                               std::function<void(std::uint64_t)> on_written) {
  const std::size_t slash = path.rfind('/');
  MUSTER_CHECK(slash != std::string::npos, "a shard needs a directory");
  ShardRecord record;
  record.rank = image.header().rank;
  record.file = path.substr(slash + 1);
  const std::string temporary = path + ".tmp";
  Status status = WriteContent(temporary, image, std::move(on_written), &record);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus(errno, "rename " + temporary);
  }
  if (status.ok()) status = SyncDirectory(path.substr(0, slash));
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return record;
}

}  // namespace muster
