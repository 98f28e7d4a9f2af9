#include "common/checkpoint_format/shard_frame.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the widest instructions that this processor has, found at run time
#endif

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/base/check.h"
#include "common/base/round_up.h"

namespace muster {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

constexpr char kMagic[] = "MUSTERSH";
constexpr std::size_t kVersion1Preamble = 24;
constexpr std::uint64_t kVersion1Alignment = 64;
constexpr std::uint64_t kMaxHeaderBytes = 256ull << 20;
constexpr std::uint64_t kMaxPieceBytes = 1ull << 30;

template <typename T>
T Take(std::string_view bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

template <typename T>
void Put(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

class Hash {
 public:
  Hash() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
  void Add(const void* data, std::size_t bytes) { XXH3_64bits_update(state_.get(), data, bytes); }
  std::string Text(const char* kind) const {
    char text[48];
    std::snprintf(text, sizeof(text), "%s:%016llx", kind,
                  static_cast<unsigned long long>(XXH3_64bits_digest(state_.get())));
    return text;
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

Status Damaged(const ExpectedShard& expected, const std::string& found) {
  return DataLoss(expected.path + " is damaged: its checksum is " + found + ", its manifest says " +
                  expected.checksum);
}

// The disk is asked again, not the memory that the file was written from. A file system that knows
// no direct reads gets at least its clean pages dropped.
void BypassPageCache(int fd) {
  if (::fcntl(fd, F_SETFL, O_DIRECT) != 0) {
    (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  }
}

// Some accept O_DIRECT and then refuse the reads.
Status ReadPast(int fd, void* data, std::uint64_t bytes, std::uint64_t offset,
                const std::string& path, int* error) {
  Status status = ReadShardBytes(fd, data, bytes, offset, path, error);
  if (status.code() == StatusCode::kInvalidArgument) {
    if (error != nullptr) *error = 0;
    (void)::fcntl(fd, F_SETFL, 0);
    (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    status = ReadShardBytes(fd, data, bytes, offset, path, error);
  }
  return status;
}

Status Before(const VerifyOptions& options, std::uint64_t bytes) {
  return options.before_read ? options.before_read(bytes) : OkStatus();
}

Status VerifyWhole(const OpenedShard& shard, const ExpectedShard& expected,
                   const VerifyOptions& options) {
  Hash hash;
  const BlockBuffer piece = MakeBlockBuffer(kShardPieceBytes);
  (void)::posix_fadvise(shard.fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  for (std::uint64_t at = 0; at < shard.file_bytes;) {
    const std::uint64_t bytes = std::min<std::uint64_t>(kShardPieceBytes, shard.file_bytes - at);
    MUSTER_RETURN_IF_ERROR(Before(options, bytes));
    MUSTER_RETURN_IF_ERROR(
        ReadShardBytes(shard.fd.get(), piece.get(), bytes, at, expected.path, options.error));
    hash.Add(piece.get(), bytes);
    at += bytes;
  }
  const std::string found = hash.Text("xxh3");
  return found == expected.checksum ? OkStatus() : Damaged(expected, found);
}

Status VerifyPieces(const OpenedShard& shard, const ExpectedShard& expected,
                    const VerifyOptions& options) {
  const ShardFrame& frame = shard.frame;
  BypassPageCache(shard.fd.get());
  const BlockBuffer head = MakeBlockBuffer(frame.data_begin);
  const BlockBuffer table = MakeBlockBuffer(frame.table_bytes());
  const auto read = [&](const BlockBuffer& to, std::uint64_t bytes, std::uint64_t offset) {
    const Status go = Before(options, bytes);
    return go.ok() ? ReadPast(shard.fd.get(), to.get(), bytes, offset, expected.path, options.error)
                   : go;
  };
  MUSTER_RETURN_IF_ERROR(read(head, frame.data_begin, 0));
  MUSTER_RETURN_IF_ERROR(read(table, frame.table_bytes(), frame.table_begin()));
  const std::string found =
      ShardChecksum({head.get(), frame.data_begin}, {table.get(), frame.table_bytes()});
  if (found != expected.checksum) return Damaged(expected, found);
  const BlockBuffer piece = MakeBlockBuffer(frame.piece_bytes);
  for (std::uint64_t i = 0; i < frame.pieces(); ++i) {
    const std::uint64_t at = i * frame.piece_bytes;
    const std::uint64_t bytes = std::min<std::uint64_t>(frame.piece_bytes, frame.data_bytes - at);
    MUSTER_RETURN_IF_ERROR(read(piece, bytes, frame.data_begin + at));
    if (PieceChecksum(piece.get(), bytes) !=
        Take<std::uint64_t>({table.get(), frame.table_bytes()}, i * sizeof(std::uint64_t))) {
      return DataLoss(expected.path + " is damaged in bytes " +
                      std::to_string(frame.data_begin + at) + " to " +
                      std::to_string(frame.data_begin + at + bytes - 1));
    }
  }
  return OkStatus();
}

}  // namespace

ShardFrame ShardFrame::Make(std::uint64_t header_bytes, std::uint64_t data_bytes) {
  ShardFrame frame;
  frame.header_bytes = header_bytes;
  frame.data_begin = RoundUp(frame.header_begin + header_bytes, kShardBlock);
  frame.data_bytes = RoundUp(data_bytes, kShardBlock);
  return frame;
}

std::uint64_t ShardFrame::pieces() const {
  return piece_bytes == 0 ? 0 : (data_bytes + piece_bytes - 1) / piece_bytes;
}

std::uint64_t ShardFrame::table_bytes() const {
  return RoundUp(pieces() * sizeof(std::uint64_t), kShardBlock);
}

std::string EncodeShardHead(const ShardFrame& frame, std::string_view json) {
  MUSTER_CHECK(json.size() == frame.header_bytes, "the frame was made for another header");
  std::string head(kMagic, 8);
  Put(&head, frame.version);
  Put(&head, frame.piece_bytes);
  Put(&head, frame.header_bytes);
  Put(&head, frame.data_bytes);
  Put(&head, std::uint64_t{0});
  head += json;
  head.resize(frame.data_begin, '\0');
  return head;
}

Result<ShardFrame> DecodeShardFrame(std::string_view preamble, std::uint64_t file_bytes) {
  if (preamble.size() < kVersion1Preamble || preamble.substr(0, 8) != kMagic) {
    return DataLoss("it is not a shard of a checkpoint");
  }
  ShardFrame frame;
  frame.version = Take<std::uint32_t>(preamble, 8);
  frame.piece_bytes = Take<std::uint32_t>(preamble, 12);
  frame.header_bytes = Take<std::uint64_t>(preamble, 16);
  if (!kShards.contains(static_cast<int>(frame.version))) {
    return DataLoss("its format version is " + std::to_string(frame.version) +
                    ", this program knows " + RangeText(kShards));
  }
  if (frame.header_bytes > kMaxHeaderBytes || frame.header_bytes > file_bytes) {
    return DataLoss("its header claims " + std::to_string(frame.header_bytes) + " bytes");
  }
  if (frame.version == 1) {
    frame.piece_bytes = 0;
    frame.header_begin = kVersion1Preamble;
    frame.data_begin = RoundUp(frame.header_begin + frame.header_bytes, kVersion1Alignment);
    frame.data_bytes = file_bytes < frame.data_begin ? 0 : file_bytes - frame.data_begin;
    return frame;
  }
  if (preamble.size() < kShardPreambleBytes) return DataLoss("it is cut short");
  frame.data_bytes = Take<std::uint64_t>(preamble, 24);
  frame.data_begin = RoundUp(frame.header_begin + frame.header_bytes, kShardBlock);
  if (frame.piece_bytes == 0 || frame.piece_bytes % kShardBlock != 0 ||
      frame.piece_bytes > kMaxPieceBytes || frame.data_bytes % kShardBlock != 0) {
    return DataLoss("its sizes are none that this program writes");
  }
  if (frame.data_bytes > file_bytes || frame.file_bytes() != file_bytes) {
    return DataLoss("it has " + std::to_string(file_bytes) + " bytes and claims to have others");
  }
  return frame;
}

std::uint64_t PieceChecksum(const void* data, std::size_t bytes) {
  return XXH3_64bits(data, bytes);
}

std::string ShardChecksum(std::string_view head, std::string_view table) {
  Hash hash;
  hash.Add(head.data(), head.size());
  hash.Add(table.data(), table.size());
  return hash.Text("xxh3-tree");
}

Result<OpenedShard> OpenShard(const std::string& path, std::optional<std::uint64_t> manifest_bytes,
                              int* error) {
  OpenedShard shard;
  const auto failed = [&](const char* call) {
    if (error != nullptr) *error = errno;
    return ErrnoStatus(errno, std::string(call) + " " + path);
  };
  // Opening a pipe would wait for its writer before it could be refused.
  shard.fd.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!shard.fd.valid()) return failed("open");
  struct stat info {};
  if (::fstat(shard.fd.get(), &info) != 0) return failed("stat");
  if (!S_ISREG(info.st_mode)) return DataLoss(path + " is not a regular file");
  shard.file_bytes = static_cast<std::uint64_t>(info.st_size);
  if (manifest_bytes && *manifest_bytes != shard.file_bytes) {
    return DataLoss(path + " has " + std::to_string(shard.file_bytes) +
                    " bytes, its manifest says " + std::to_string(*manifest_bytes));
  }
  std::string preamble(std::min<std::uint64_t>(kShardPreambleBytes, shard.file_bytes), '\0');
  MUSTER_RETURN_IF_ERROR(
      ReadShardBytes(shard.fd.get(), preamble.data(), preamble.size(), 0, path, error));
  auto frame = DecodeShardFrame(preamble, shard.file_bytes);
  if (!frame.ok()) return frame.status().WithContext(path);
  shard.frame = *frame;
  return shard;
}

Status ReadShardBytes(int fd, void* data, std::uint64_t bytes, std::uint64_t offset,
                      const std::string& path, int* error) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      if (error != nullptr) *error = errno;
      return ErrnoStatus(errno, "read " + path);
    }
    if (n == 0) return DataLoss(path + " ends early");
    at += n;
    offset += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::uint64_t>(n);
  }
  return OkStatus();
}

Status VerifyShardFile(const ExpectedShard& expected) { return VerifyShardFile(expected, {}); }

Status VerifyShardFile(const ExpectedShard& expected, const VerifyOptions& options) {
  MUSTER_RETURN_IF_ERROR(Before(options, kShardPreambleBytes));
  MUSTER_ASSIGN_OR_RETURN(const OpenedShard shard,
                          OpenShard(expected.path, expected.bytes, options.error));
  return shard.frame.version == 1 ? VerifyWhole(shard, expected, options)
                                  : VerifyPieces(shard, expected, options);
}

void FreeDeleter::operator()(void* memory) const { std::free(memory); }

BlockBuffer MakeBlockBuffer(std::size_t bytes) {
  const std::size_t rounded = RoundUp(std::max<std::size_t>(bytes, 1), kShardBlock);
  BlockBuffer buffer(static_cast<char*>(std::aligned_alloc(kShardBlock, rounded)));
  MUSTER_CHECK(buffer != nullptr, "out of memory for a piece of a checkpoint");
  return buffer;
}

}  // namespace muster
