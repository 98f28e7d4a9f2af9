#include "trainer/data/token_cache.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <xxhash.h>

#include "common/base/files.h"
#include "trainer/data/cache_folder.h"
#include "trainer/data/verified_mark.h"

namespace muster {
namespace {

static_assert(std::endian::native == std::endian::little, "entries are written as they lie here");

constexpr std::uint64_t kMagic = 0x324b4f545453554d;  // "MUSTTOK2"
constexpr std::size_t kBufferBytes = 4 << 20;
constexpr std::int64_t kGroupRows = 64;
// Synced as it grows, so that the end does not stand still for all of it.
constexpr std::int64_t kSyncBytes = 256 << 20;

enum Word {
  kMagicWord,
  kKey,
  kFiles,
  kRows,
  kTokens,
  kLabelTokens,
  kTruncated,
  kSplit,
  kDropped,
  kFingerprint,
  kIndexHash,
  kHeaderHash,
  kWords
};
using Header = std::array<std::uint64_t, kWords>;

std::uint64_t HashOf(const Header& header) {
  return XXH3_64bits(header.data(), kHeaderHash * sizeof(std::uint64_t));
}

std::uint64_t HashOf(std::span<const std::uint32_t> lengths, std::span<const std::uint32_t> labels,
                     std::uint64_t places) {
  const std::uint64_t parts[] = {XXH3_64bits(lengths.data(), lengths.size_bytes()),
                                 XXH3_64bits(labels.data(), labels.size_bytes()), places};
  return XXH3_64bits(parts, sizeof parts);
}

std::int64_t FileBytes(std::int64_t rows, std::int64_t tokens) {
  return static_cast<std::int64_t>(sizeof(Header)) + tokens * 4 + rows * (4 + 4 + 8);
}

bool IsUnlinked(int fd) {
  struct stat info = {};
  return ::fstat(fd, &info) == 0 && info.st_nlink == 0;
}

// Against being tidied away. A process that holds it for itself either has just written the entry
// or is about to remove it, and both are soon over; without locks of a file system there is none.
void LockShared(int fd) {
  constexpr int kMostTries = 100;
  constexpr int kPauseMillis = 10;
  for (int i = 0; i < kMostTries && ::flock(fd, LOCK_SH | LOCK_NB) != 0; ++i) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;
    ::poll(nullptr, 0, kPauseMillis);
  }
}

bool IsWhole(const Header& header) {
  return header[kMagicWord] == kMagic && header[kHeaderHash] == HashOf(header);
}

}  // namespace

std::optional<CacheEntryId> ReadEntryId(const std::string& path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
  // To look at it is not to use it. Only the owner may say so.
  UniqueFd fd(::open(path.c_str(), kFlags | O_NOATIME));
  if (!fd.valid() && errno == EPERM) fd.reset(::open(path.c_str(), kFlags));
  Header header{};
  if (!fd.valid() ||
      ::pread(fd.get(), header.data(), sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      !IsWhole(header))
    return std::nullopt;
  return CacheEntryId{.key = header[kKey], .files = header[kFiles]};
}

TokenCacheWriter::TokenCacheWriter(std::string path, std::string temporary, UniqueFd fd,
                                   CacheEntryId id)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)), id_(id) {}

Result<std::unique_ptr<TokenCacheWriter>> TokenCacheWriter::Create(const std::string& path,
                                                                   CacheEntryId id) {
  UniqueFd fd;
  MUSTER_ASSIGN_OR_RETURN(std::string temporary, MakeFile(path, &fd));
  std::unique_ptr<TokenCacheWriter> writer(
      new TokenCacheWriter(path, std::move(temporary), std::move(fd), id));
  const Header none{};
  MUSTER_RETURN_IF_ERROR(writer->Append(none.data(), sizeof none));
  return writer;
}

// Locked as long as it is written: a process that tidies up recognizes by it what a writer has left
// behind. One that does so just now may find it before it is locked, so that it is made again.
Result<std::string> TokenCacheWriter::MakeFile(const std::string& path, UniqueFd* fd) {
  constexpr int kMostFiles = 8;
  for (int i = 0; i < kMostFiles; ++i) {
    std::string temporary = TemporaryEntryName(path);
    fd->reset(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    // A process of another container has that name, or one that is gone had it.
    if (!fd->valid() && errno == EEXIST) continue;
    if (!fd->valid()) return ErrnoStatus(errno, "create " + temporary);
    const bool in_use = ::flock(fd->get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!in_use && !IsUnlinked(fd->get())) return temporary;
  }
  return Aborted("create " + path + ": each file was another writer's or removed at once");
}

TokenCacheWriter::~TokenCacheWriter() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status TokenCacheWriter::Append(const void* data, std::size_t bytes,
                                const std::function<void()>& on_written) {
  const auto* begin = static_cast<const char*>(data);
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, kBufferBytes);
    buffer_.insert(buffer_.end(), begin, begin + part);
    begin += part;
    bytes -= part;
    if (buffer_.size() < kBufferBytes) continue;
    MUSTER_RETURN_IF_ERROR(Flush());
    if (on_written) on_written();
  }
  return OkStatus();
}

Status TokenCacheWriter::Flush() {
  for (std::size_t done = 0; done < buffer_.size();) {
    const ssize_t n = ::pwrite(fd_.get(), buffer_.data() + done, buffer_.size() - done, written_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write " + temporary_);
    done += static_cast<std::size_t>(n);
    written_ += n;
  }
  buffer_.clear();
  if (written_ - synced_ < kSyncBytes) return OkStatus();
  synced_ = written_;
  return ::fdatasync(fd_.get()) == 0 ? OkStatus() : ErrnoStatus(errno, "sync " + temporary_);
}

Status TokenCacheWriter::Add(const EncodedRows& rows) {
  std::span<const std::uint32_t> words = rows.words;
  for (const std::uint32_t length : rows.lengths) {
    fingerprint_.Add(words.first(length));
    words = words.subspan(length);
  }
  lengths_.insert(lengths_.end(), rows.lengths.begin(), rows.lengths.end());
  labels_.insert(labels_.end(), rows.labels.begin(), rows.labels.end());
  places_.insert(places_.end(), rows.places.begin(), rows.places.end());
  AddStats(rows.stats, &stats_);
  return Append(rows.words.data(), rows.words.size() * sizeof(std::uint32_t));
}

Status TokenCacheWriter::Finish(const std::function<void()>& on_written) {
  const auto append = [&](const auto& values) {
    return Append(values.data(), std::span(values).size_bytes(), on_written);
  };
  MUSTER_RETURN_IF_ERROR(append(lengths_));
  MUSTER_RETURN_IF_ERROR(append(labels_));
  MUSTER_RETURN_IF_ERROR(append(places_));
  MUSTER_RETURN_IF_ERROR(Flush());
  Header header{};
  header[kMagicWord] = kMagic;
  header[kKey] = id_.key;
  header[kFiles] = id_.files;
  header[kRows] = static_cast<std::uint64_t>(stats_.rows);
  header[kTokens] = static_cast<std::uint64_t>(stats_.tokens);
  header[kLabelTokens] = static_cast<std::uint64_t>(stats_.label_tokens);
  header[kTruncated] = static_cast<std::uint64_t>(stats_.truncated);
  header[kSplit] = static_cast<std::uint64_t>(stats_.split);
  header[kDropped] = static_cast<std::uint64_t>(stats_.dropped);
  header[kFingerprint] = fingerprint_.value();
  header[kIndexHash] =
      HashOf(lengths_, labels_, XXH3_64bits(places_.data(), std::span(places_).size_bytes()));
  header[kHeaderHash] = HashOf(header);
  if (::pwrite(fd_.get(), header.data(), sizeof header, 0) != static_cast<ssize_t>(sizeof header))
    return ErrnoStatus(errno, "write " + temporary_);
  if (::fsync(fd_.get()) != 0) return ErrnoStatus(errno, "fsync " + temporary_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return ErrnoStatus(errno, "rename " + temporary_ + " to " + path_);
  temporary_.clear();
  // Readers wait for its lock.
  fd_.reset();
  if (on_written) on_written();
  return SyncDirectory(std::filesystem::path(path_).parent_path().string());
}

CachedDataset::CachedDataset(std::string path, UniqueFd fd, std::vector<std::string> paths)
    : path_(std::move(path)), fd_(std::move(fd)), paths_(std::move(paths)) {}

Result<std::unique_ptr<const CachedDataset>> CachedDataset::Open(const std::string& path,
                                                                 std::uint64_t key,
                                                                 std::int64_t vocab_size,
                                                                 std::vector<std::string> paths) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info = {};
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  LockShared(fd.get());
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "open " + path);
  if (info.st_nlink == 0) return NotFound(path + " has just been removed");
  std::unique_ptr<CachedDataset> dataset(new CachedDataset(path, std::move(fd), std::move(paths)));
  dataset->identity_ = IdentityOf(info);
  dataset->vocab_size_ = vocab_size;
  MUSTER_RETURN_IF_ERROR(dataset->ReadHeader(key));
  MUSTER_RETURN_IF_ERROR(dataset->ReadLengths());
  dataset->MarkUsedNowAndThen();
  return std::unique_ptr<const CachedDataset>(std::move(dataset));
}

Status CachedDataset::Verify(const std::function<void()>& on_read) const {
  MUSTER_RETURN_IF_ERROR(CheckIndex(on_read));
  return CheckTokens(on_read);
}

Status CachedDataset::Damaged(const std::string& what) const {
  return DataLoss(path_ + " is damaged: " + what);
}

Status CachedDataset::ReadAt(std::int64_t offset, void* data, std::size_t bytes) const {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd_.get(), to, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read " + path_);
    if (n == 0) return Damaged("it has become shorter");
    to += n;
    offset += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return OkStatus();
}

Status CachedDataset::ReadHeader(std::uint64_t key) {
  const std::int64_t file_bytes = identity_.bytes;
  Header header{};
  if (file_bytes < static_cast<std::int64_t>(sizeof header)) return Damaged("it has no header");
  MUSTER_RETURN_IF_ERROR(ReadAt(0, header.data(), sizeof header));
  if (!IsWhole(header)) return Damaged("its header is not whole");
  if (header[kKey] != key) return Damaged("it is another key's");
  const auto count = [&header](Word word) { return static_cast<std::int64_t>(header[word]); };
  stats_ = {.rows = count(kRows),
            .truncated = count(kTruncated),
            .split = count(kSplit),
            .dropped = count(kDropped),
            .tokens = count(kTokens),
            .label_tokens = count(kLabelTokens)};
  fingerprint_ = header[kFingerprint];
  index_hash_ = header[kIndexHash];
  if (FileBytes(stats_.rows, stats_.tokens) != file_bytes)
    return Damaged("it has " + std::to_string(file_bytes) + " bytes instead of " +
                   std::to_string(FileBytes(stats_.rows, stats_.tokens)));
  return OkStatus();
}

std::int64_t CachedDataset::index_begin() const {
  return static_cast<std::int64_t>(sizeof(Header)) + stats_.tokens * 4;
}

Status CachedDataset::ReadLengths() {
  const auto rows = static_cast<std::size_t>(stats_.rows);
  lengths_.resize(rows);
  labels_.resize(rows);
  MUSTER_RETURN_IF_ERROR(ReadAt(index_begin(), lengths_.data(), rows * 4));
  MUSTER_RETURN_IF_ERROR(ReadAt(index_begin() + stats_.rows * 4, labels_.data(), rows * 4));
  std::int64_t offset = 0;
  for (std::int64_t row = 0; row < stats_.rows; ++row) {
    if (row % kGroupRows == 0) group_offsets_.push_back(offset);
    offset += Length(row);
  }
  if (offset != stats_.tokens) return Damaged("its index does not fit its tokens");
  return OkStatus();
}

// Places are hashed, but not kept.
Status CachedDataset::CheckIndex(const std::function<void()>& on_read) const {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(),
                                                                      &XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  std::vector<char> buffer(kBufferBytes);
  std::int64_t at = index_begin() + stats_.rows * 8;
  for (std::size_t left = lengths_.size() * 8; left > 0;) {
    const std::size_t part = std::min(left, buffer.size());
    MUSTER_RETURN_IF_ERROR(ReadAt(at, buffer.data(), part));
    XXH3_64bits_update(hash.get(), buffer.data(), part);
    at += static_cast<std::int64_t>(part);
    left -= part;
    if (on_read) on_read();
  }
  if (HashOf(lengths_, labels_, XXH3_64bits_digest(hash.get())) != index_hash_)
    return Damaged("its index is not what was written");
  return OkStatus();
}

Status CachedDataset::CheckTokens(const std::function<void()>& on_read) const {
  RowsFingerprint found;
  std::vector<std::uint32_t> words;
  std::int64_t offset = 0;
  for (std::int64_t row = 0; row < stats_.rows;) {
    // As many rows as a buffer holds, and at least one.
    std::int64_t end = row + 1;
    std::int64_t count = Length(row);
    while (end < stats_.rows &&
           (count + Length(end)) * 4 <= static_cast<std::int64_t>(kBufferBytes))
      count += Length(end++);
    words.resize(static_cast<std::size_t>(count));
    MUSTER_RETURN_IF_ERROR(ReadAt(static_cast<std::int64_t>(sizeof(Header)) + offset * 4,
                                  words.data(), words.size() * 4));
    std::span<const std::uint32_t> left = words;
    for (; row < end; ++row) {
      found.Add(left.first(static_cast<std::size_t>(Length(row))));
      left = left.subspan(static_cast<std::size_t>(Length(row)));
    }
    offset += count;
    if (on_read) on_read();
  }
  return found.value() == fingerprint_ ? OkStatus()
                                       : Damaged("its tokens are not what was written");
}

std::int64_t CachedDataset::Offset(std::int64_t row) const {
  std::int64_t offset = group_offsets_[static_cast<std::size_t>(row / kGroupRows)];
  for (std::int64_t r = row / kGroupRows * kGroupRows; r < row; ++r) offset += Length(r);
  return offset;
}

Status CachedDataset::Read(std::int64_t row, std::span<std::int64_t> ids,
                           std::span<std::int64_t> labels) const {
  MarkUsedNowAndThen();
  std::vector<std::uint32_t> words(ids.size());
  const Status read = ReadAt(static_cast<std::int64_t>(sizeof(Header)) + Offset(row) * 4,
                             words.data(), words.size() * 4);
  if (!read.ok()) return LostInUse("cannot be read any more: " + read.message());
  UnpackRow(words, ids, labels);
  if (std::any_of(ids.begin(), ids.end(), [this](std::int64_t id) { return id >= vocab_size_; }))
    return LostInUse("is damaged: row " + std::to_string(row) + " has changed since it was opened");
  return OkStatus();
}

// A disk that loses bytes does not show it in the times of a file, which the mark goes by.
Status CachedDataset::LostInUse(const std::string& what) const {
  VerifiedMark(path_).Clear();
  return Unavailable("the token cache " + path_ + " " + what);
}

void CachedDataset::MarkUsedNowAndThen() const {
  const TimePoint now = SystemClock().Now();
  if (now < next_mark_.load(std::memory_order_relaxed)) return;
  next_mark_.store(now + kMarkEvery, std::memory_order_relaxed);
  MarkUsed(fd_.get());
}

Status CachedDataset::Check() const {
  struct stat info = {};
  if (::fstat(fd_.get(), &info) != 0) return Unavailable(path_ + " is gone");
  if (info.st_nlink == 0) return Unavailable(path_ + " was removed");
  if (info.st_size != FileBytes(stats_.rows, stats_.tokens))
    return Unavailable(path_ + " has changed its size");
  return OkStatus();
}

std::string CachedDataset::Describe(std::span<const std::int64_t> rows) const {
  std::vector<RowPlace> places;
  for (const std::int64_t row : rows) {
    std::uint64_t place = 0;
    if (!ReadAt(index_begin() + stats_.rows * 8 + row * 8, &place, sizeof place).ok())
      return DescribePlaces("row", {rows.begin(), rows.end()}, path_);
    places.push_back(RowPlace::Unpack(place));
  }
  return DescribeRowPlaces(places, paths_);
}

}  // namespace muster
