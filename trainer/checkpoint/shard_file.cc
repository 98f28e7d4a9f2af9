#include "trainer/checkpoint/shard_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "common/base/files.h"
#include "common/base/unique_fd.h"
#include "trainer/checkpoint/shard_header.h"

namespace muster {
namespace {

constexpr std::size_t kPieceBytes = 4 << 20;

class Hash {
 public:
  Hash() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
  void Add(const void* data, std::size_t bytes) { XXH3_64bits_update(state_.get(), data, bytes); }
  std::string Text() const {
    char text[32];
    std::snprintf(text, sizeof(text), "xxh3:%016llx",
                  static_cast<unsigned long long>(XXH3_64bits_digest(state_.get())));
    return text;
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

// Writes and hashes in one pass, so that the checksum is of what was handed over.
class HashingWriter {
 public:
  HashingWriter(int fd, const std::string& path) : fd_(fd), path_(path) {}

  Status Write(const void* data, std::size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const std::size_t piece = std::min(bytes, kPieceBytes);
      const ssize_t n = ::write(fd_, at, piece);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "write " + path_);
      hash_.Add(at, static_cast<std::size_t>(n));
      at += n;
      bytes -= static_cast<std::size_t>(n);
      written_ += static_cast<std::uint64_t>(n);
    }
    return OkStatus();
  }

  Status PadTo(std::uint64_t offset) {
    static constexpr char kZeros[kShardAlignment] = {};
    MUSTER_CHECK(offset >= written_ && offset - written_ < sizeof(kZeros), "shard padding");
    return Write(kZeros, offset - written_);
  }

  std::uint64_t written() const { return written_; }
  std::string Checksum() const { return hash_.Text(); }

 private:
  const int fd_;
  const std::string& path_;
  Hash hash_;
  std::uint64_t written_ = 0;
};

Status Preallocate(int fd, std::uint64_t bytes, const std::string& path) {
  if (::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) return OkStatus();
  // Not every file system can; then a full disk shows while writing.
  if (errno == EOPNOTSUPP || errno == ENOSYS) return OkStatus();
  return ErrnoStatus(errno, "reserve " + std::to_string(bytes) + " bytes for " + path);
}

Status WriteContent(int fd, const std::string& path, const ShardHeader& header,
                    ShardRecord* record) {
  const EncodedShardHeader encoded = EncodeShardHeader(header);
  MUSTER_RETURN_IF_ERROR(Preallocate(fd, encoded.file_bytes, path));
  HashingWriter writer(fd, path);
  MUSTER_RETURN_IF_ERROR(writer.Write(encoded.text.data(), encoded.text.size()));
  for (std::size_t i = 0; i < header.arrays.size(); ++i) {
    const ShardArray& array = header.arrays[i];
    MUSTER_RETURN_IF_ERROR(writer.PadTo(encoded.offsets[i]));
    MUSTER_RETURN_IF_ERROR(
        writer.Write(array.data, static_cast<std::size_t>(array.count) * ElementSize(array.type)));
  }
  if (::fsync(fd) != 0) return ErrnoStatus(errno, "fsync " + path);
  record->bytes = writer.written();
  record->checksum = writer.Checksum();
  return OkStatus();
}

Result<UniqueFd> OpenForReading(const std::string& path, std::uint64_t* bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return DataLoss(path + " is not a regular file");
  *bytes = static_cast<std::uint64_t>(info.st_size);
  return fd;
}

Status ReadAt(int fd, void* data, std::uint64_t bytes, std::uint64_t offset,
              const std::string& path) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n =
        ::pread(fd, at, std::min<std::uint64_t>(bytes, kPieceBytes), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read " + path);
    if (n == 0) return DataLoss(path + " ends early");
    at += n;
    offset += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::uint64_t>(n);
  }
  return OkStatus();
}

Result<DecodedShardHeader> ReadHeader(int fd, std::uint64_t file_bytes, const std::string& path) {
  std::string text(kShardPreambleBytes, '\0');
  if (file_bytes < text.size()) {
    return DataLoss(path + " has " + std::to_string(file_bytes) + " bytes: too few for a shard");
  }
  MUSTER_RETURN_IF_ERROR(ReadAt(fd, text.data(), text.size(), 0, path));
  const auto header_bytes = DecodeShardPreamble(text, file_bytes);
  if (!header_bytes.ok()) return header_bytes.status().WithContext(path);
  text.resize(*header_bytes);
  MUSTER_RETURN_IF_ERROR(ReadAt(fd, text.data(), text.size(), kShardPreambleBytes, path));
  auto decoded = DecodeShardHeader(text, file_bytes);
  if (!decoded.ok()) return decoded.status().WithContext(path);
  return decoded;
}

}  // namespace

Result<ShardRecord> WriteShard(const std::string& path, const ShardHeader& header) {
  const std::size_t slash = path.rfind('/');
  MUSTER_CHECK(slash != std::string::npos, "a shard needs a directory");
  ShardRecord record;
  record.rank = header.rank;
  record.file = path.substr(slash + 1);
  const std::string temporary = path + ".tmp";
  const Status status = [&]() -> Status {
    UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd.valid()) return ErrnoStatus(errno, "create " + temporary);
    MUSTER_RETURN_IF_ERROR(WriteContent(fd.get(), temporary, header, &record));
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
      return ErrnoStatus(errno, "rename " + temporary);
    }
    return SyncDirectory(path.substr(0, slash));
  }();
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return record;
}

Result<ShardHeader> ReadShardHeader(const std::string& path) {
  std::uint64_t file_bytes = 0;
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForReading(path, &file_bytes));
  MUSTER_ASSIGN_OR_RETURN(DecodedShardHeader decoded, ReadHeader(fd.get(), file_bytes, path));
  return std::move(decoded.header);
}

Status VerifyShard(const std::string& directory, const ShardRecord& record) {
  const std::string path = directory + "/" + record.file;
  std::uint64_t file_bytes = 0;
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForReading(path, &file_bytes));
  if (file_bytes != record.bytes) {
    return DataLoss(path + " has " + std::to_string(file_bytes) + " bytes, its manifest says " +
                    std::to_string(record.bytes));
  }
  Hash hash;
  const auto piece = std::make_unique<char[]>(kPieceBytes);
  for (std::uint64_t at = 0; at < file_bytes;) {
    const std::uint64_t bytes = std::min<std::uint64_t>(kPieceBytes, file_bytes - at);
    MUSTER_RETURN_IF_ERROR(ReadAt(fd.get(), piece.get(), bytes, at, path));
    hash.Add(piece.get(), bytes);
    at += bytes;
  }
  if (hash.Text() != record.checksum) {
    return DataLoss(path + " is damaged: its checksum is " + hash.Text() + ", its manifest says " +
                    record.checksum);
  }
  return OkStatus();
}

Status ReadShardArrays(const std::string& path, const std::vector<ShardArray>& arrays) {
  std::uint64_t file_bytes = 0;
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForReading(path, &file_bytes));
  MUSTER_ASSIGN_OR_RETURN(const DecodedShardHeader decoded, ReadHeader(fd.get(), file_bytes, path));
  MUSTER_RETURN_IF_ERROR(CheckShardLayout(decoded.header, arrays, path));
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(arrays[i].count) * ElementSize(arrays[i].type);
    MUSTER_RETURN_IF_ERROR(ReadAt(fd.get(), arrays[i].data, bytes, decoded.offsets[i], path));
  }
  return OkStatus();
}

}  // namespace muster
