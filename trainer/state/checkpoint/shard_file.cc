#include "trainer/state/checkpoint/shard_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace muster {
namespace {

ExpectedShard Expected(const std::string& directory, const ShardRecord& record) {
  return {directory + "/" + record.file, record.bytes, record.checksum};
}

// All of `file` up to the data.
Result<std::string> ReadHead(const OpenedShard& file, const std::string& path) {
  std::string head(std::min(file.frame.data_begin, file.file_bytes), '\0');
  MUSTER_RETURN_IF_ERROR(ReadShardBytes(file.fd.get(), head.data(), head.size(), 0, path));
  return head;
}

Result<DecodedShardHeader> DecodeHead(const std::string& head, const OpenedShard& file,
                                      const std::string& path) {
  const std::string_view text(head);
  auto decoded =
      ShardHeaderFromJson(text.substr(std::min<std::size_t>(file.frame.header_begin, text.size()),
                                      file.frame.header_bytes),
                          file.frame);
  if (!decoded.ok()) return decoded.status().WithContext(path);
  return decoded;
}

}  // namespace

Status VerifyShard(const std::string& directory, const ShardRecord& record) {
  return VerifyShardFile(Expected(directory, record));
}

Result<ShardHeader> ReadShardHeader(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const OpenedShard file, OpenShard(path));
  MUSTER_ASSIGN_OR_RETURN(const std::string head, ReadHead(file, path));
  MUSTER_ASSIGN_OR_RETURN(DecodedShardHeader decoded, DecodeHead(head, file, path));
  return std::move(decoded.header);
}

const PieceCache::Piece* PieceCache::Find(const void* owner, std::uint64_t index) const {
  for (const Piece& piece : pieces_) {
    if (piece.owner == owner && piece.index == index) return &piece;
  }
  return nullptr;
}

PieceCache::Piece* PieceCache::Reuse(std::size_t bytes) {
  Piece* piece = &pieces_[oldest_];
  oldest_ = (oldest_ + 1) % pieces_.size();
  piece->owner = nullptr;
  if (piece->bytes < bytes) {
    piece->data = MakeBlockBuffer(bytes);
    piece->bytes = bytes;
  }
  return piece;
}

Result<ShardReader> ShardReader::Open(const std::string& directory, const ShardRecord& record) {
  const ExpectedShard expected = Expected(directory, record);
  ShardReader reader;
  reader.path_ = expected.path;
  MUSTER_ASSIGN_OR_RETURN(reader.file_, OpenShard(expected.path, expected.bytes));
  const ShardFrame& frame = reader.file_.frame;
  MUSTER_ASSIGN_OR_RETURN(const std::string head, ReadHead(reader.file_, expected.path));
  if (frame.version == 1) {
    // It has no checksums of parts: all or nothing.
    MUSTER_RETURN_IF_ERROR(VerifyShardFile(expected));
  } else {
    reader.table_.resize(frame.table_bytes());
    MUSTER_RETURN_IF_ERROR(ReadShardBytes(reader.file_.fd.get(), reader.table_.data(),
                                          reader.table_.size(), frame.table_begin(),
                                          expected.path));
    const std::string found = ShardChecksum(head, reader.table_);
    if (found != expected.checksum) {
      return DataLoss(expected.path + " is damaged: its checksum is " + found +
                      ", its manifest says " + expected.checksum);
    }
  }
  MUSTER_ASSIGN_OR_RETURN(reader.decoded_, DecodeHead(head, reader.file_, expected.path));
  return reader;
}

std::uint64_t ShardReader::PieceBytes(std::uint64_t index) const {
  const ShardFrame& frame = file_.frame;
  return std::min<std::uint64_t>(frame.piece_bytes, frame.data_bytes - index * frame.piece_bytes);
}

Status ShardReader::CheckPiece(std::uint64_t index, const void* data, std::uint64_t bytes) const {
  std::uint64_t wanted = 0;
  std::memcpy(&wanted, table_.data() + index * sizeof(wanted), sizeof(wanted));
  if (PieceChecksum(data, bytes) == wanted) return OkStatus();
  const std::uint64_t begin = file_.frame.data_begin + index * file_.frame.piece_bytes;
  return DataLoss(path_ + " is damaged in bytes " + std::to_string(begin) + " to " +
                  std::to_string(begin + bytes - 1));
}

Result<const char*> ShardReader::WholePiece(std::uint64_t index, PieceCache* cache) const {
  if (const PieceCache::Piece* piece = cache->Find(this, index)) return piece->data.get();
  const ShardFrame& frame = file_.frame;
  const std::uint64_t bytes = PieceBytes(index);
  PieceCache::Piece* piece = cache->Reuse(frame.piece_bytes);
  MUSTER_RETURN_IF_ERROR(ReadShardBytes(file_.fd.get(), piece->data.get(), bytes,
                                        frame.data_begin + index * frame.piece_bytes, path_));
  MUSTER_RETURN_IF_ERROR(CheckPiece(index, piece->data.get(), bytes));
  piece->owner = this;
  piece->index = index;
  return piece->data.get();
}

Status ShardReader::Read(std::uint64_t begin, std::uint64_t bytes, void* to,
                         PieceCache* cache) const {
  const ShardFrame& frame = file_.frame;
  MUSTER_CHECK(begin <= frame.data_bytes && bytes <= frame.data_bytes - begin,
               "a read outside of " + path_);
  char* out = static_cast<char*>(to);
  if (frame.version == 1) {
    return ReadShardBytes(file_.fd.get(), out, bytes, frame.data_begin + begin, path_);
  }
  while (bytes > 0) {
    const std::uint64_t index = begin / frame.piece_bytes;
    const std::uint64_t within = begin % frame.piece_bytes;
    const std::uint64_t whole = PieceBytes(index);
    const std::uint64_t part = std::min(bytes, whole - within);
    if (part == whole) {
      // Straight to where it belongs, checked there.
      MUSTER_RETURN_IF_ERROR(
          ReadShardBytes(file_.fd.get(), out, whole, frame.data_begin + begin, path_));
      MUSTER_RETURN_IF_ERROR(CheckPiece(index, out, whole));
    } else {
      MUSTER_ASSIGN_OR_RETURN(const char* piece, WholePiece(index, cache));
      std::memcpy(out, piece + within, part);
    }
    out += part;
    begin += part;
    bytes -= part;
  }
  return OkStatus();
}

}  // namespace muster
