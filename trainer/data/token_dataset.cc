#include "trainer/data/token_dataset.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <vector>

#include <xxhash.h>

#include "common/base/check.h"
#include "trainer/data/npy_header.h"

namespace muster {
namespace {

static_assert(std::endian::native == std::endian::little, "ids are read as they lie in the file");

constexpr std::int64_t kSampledPages = 256;
constexpr std::int64_t kSampledIds = 2048;  // of a page
constexpr std::int64_t kSmallVocabulary = 65'536;

// All of `bytes` at `offset`; a file that ends before is an error.
Status ReadFully(int fd, const std::string& path, std::int64_t offset, std::span<char> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pread(fd, bytes.data() + done, bytes.size() - done,
                              static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read " + path);
    if (n == 0) return DataLoss(path + " has become shorter since training began");
    done += static_cast<std::size_t>(n);
  }
  return OkStatus();
}

template <typename Id>
void Widen(std::span<const char> bytes, std::span<std::int64_t> ids) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Id id;
    std::memcpy(&id, bytes.data() + i * sizeof id, sizeof id);
    ids[i] = static_cast<std::int64_t>(id);
  }
}

// Ids of 32 bits taken for ids of 16: every second one is 0, the others are not. `first` is the
// number of the first id within the file.
bool LooksLikeHalves(std::int64_t first, std::span<const std::int64_t> ids) {
  std::int64_t sums[2] = {0, 0};
  for (std::size_t i = 0; i < ids.size(); ++i)
    sums[(static_cast<std::size_t>(first) + i) % 2] += ids[i];
  return ids.size() >= 16 && sums[0] != 0 && sums[1] == 0;
}

}  // namespace

bool IsTokenFile(const std::string& path) {
  return path.ends_with(".npy") || path.ends_with(".bin");
}

TokenDataset::TokenDataset(std::string path, UniqueFd fd, const TokenDatasetOptions& options)
    : path_(std::move(path)), fd_(std::move(fd)), options_(options) {}

Result<TokenDataset> TokenDataset::Open(const std::string& path,
                                        const TokenDatasetOptions& options) {
  MUSTER_CHECK(IsTokenFile(path), "a file of token ids");
  // Opening a pipe would wait for its writer before it could be refused.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid() && errno == ENOENT)
    return NotFound("there is no training file " + path + "; name one in train.data.train");
  struct stat info = {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "open " + path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path + " is no regular file");
  const std::int64_t bytes = info.st_size;
  TokenDataset dataset(path, std::move(fd), options);
  const Status layout =
      path.ends_with(".npy") ? dataset.ReadNpyLayout(bytes) : dataset.ReadBinLayout(bytes);
  MUSTER_RETURN_IF_ERROR(layout);
  MUSTER_RETURN_IF_ERROR(dataset.FinishLayout());
  MUSTER_RETURN_IF_ERROR(dataset.Sample(bytes));
  return dataset;
}

Status TokenDataset::ReadNpyLayout(std::int64_t file_bytes) {
  std::string start(
      static_cast<std::size_t>(std::min<std::int64_t>(file_bytes, kMaxNpyHeaderBytes)), '\0');
  MUSTER_RETURN_IF_ERROR(ReadFully(fd_.get(), path_, 0, start));
  const Result<NpyHeader> header = ParseNpyHeader(start);
  if (!header.ok()) return Status(header.status().code(), path_ + " " + header.status().message());
  if (header->descr == "<u2") {
    type_ = IdType::kU16;
  } else if (header->descr == "<u4") {
    type_ = IdType::kU32;
  } else if (header->descr == "<i4") {
    type_ = IdType::kI32;
  } else if (header->descr == "<i8") {
    type_ = IdType::kI64;
  } else {
    return InvalidArgument(path_ + " holds elements of type '" + header->descr +
                           "'; token ids are '<u2', '<u4', '<i4' or '<i8': save the array as " +
                           "astype('<u4')");
  }
  if (header->shape.size() != 2)
    return InvalidArgument(path_ + " has " + std::to_string(header->shape.size()) +
                           " dimensions; token ids are an array [rows, length]");
  if (header->fortran_order)
    return InvalidArgument(path_ + " is in Fortran order; save numpy.ascontiguousarray(rows)");
  const std::int64_t rows = header->shape[0];
  const std::int64_t length = header->shape[1];
  const std::int64_t room = (file_bytes - header->data_begin) / id_bytes();
  // Without a product that could overflow.
  const bool fits = rows >= 0 && length >= 0 && (rows == 0 || length <= room / rows);
  if (!fits || rows * length * id_bytes() != file_bytes - header->data_begin)
    return DataLoss(path_ + " is " + std::to_string(file_bytes) + " bytes long, which is not " +
                    std::to_string(header->data_begin) + " bytes of header and " +
                    std::to_string(rows) + " x " + std::to_string(length) + " ids of " +
                    std::to_string(id_bytes()) + " bytes; it was cut off or added to");
  data_begin_ = header->data_begin;
  stride_ = length;
  row_length_ = std::min(length, options_.max_seq_len);
  stats_.rows = rows;
  stats_.truncated = row_length_ < length ? rows : 0;
  return OkStatus();
}

Status TokenDataset::ReadBinLayout(std::int64_t file_bytes) {
  type_ = options_.vocab_size <= kSmallVocabulary ? IdType::kU16 : IdType::kU32;
  if (file_bytes % id_bytes() != 0)
    return DataLoss(path_ + " is " + std::to_string(file_bytes) + " bytes long, which is no " +
                    "multiple of the " + std::to_string(id_bytes()) + " bytes of an id (the " +
                    "model's vocabulary has " + std::to_string(options_.vocab_size) + " words)");
  stride_ = row_length_ = options_.max_seq_len;
  const std::int64_t ids = file_bytes / id_bytes();
  stats_.rows = ids / stride_;
  stats_.trailing_tokens = ids % stride_;
  if (stats_.rows == 0 && ids > 0)
    return InvalidArgument(path_ + " holds " + std::to_string(ids) +
                           " ids, fewer than one row of " + std::to_string(stride_) +
                           " (train.data.max_seq_len)");
  return OkStatus();
}

Status TokenDataset::FinishLayout() {
  if (stats_.rows == 0) return InvalidArgument(path_ + " has no rows");
  if (row_length_ < 2)
    return InvalidArgument(path_ + " has rows of one token, which leave nothing to predict");
  // The order of rows is kept in 32 bits.
  if (stats_.rows > std::numeric_limits<std::int32_t>::max())
    return InvalidArgument(path_ + " has " + std::to_string(stats_.rows) +
                           " rows, more than 2,147,483,647; make the rows longer");
  stats_.tokens = stats_.rows * row_length_;
  stats_.label_tokens = stats_.rows * (row_length_ - 1);
  return OkStatus();
}

Status TokenDataset::Sample(std::int64_t file_bytes) {
  const std::int64_t shape[] = {file_bytes, data_begin_, static_cast<std::int64_t>(type_), stride_,
                                row_length_};
  fingerprint_ = XXH3_64bits(shape, sizeof shape);
  const std::int64_t ids = stats_.rows * stride_;
  std::vector<std::int64_t> page(static_cast<std::size_t>(std::min(ids, kSampledIds)));
  const auto room = ids - static_cast<std::int64_t>(page.size());
  const std::int64_t pages = room == 0 ? 1 : std::min(kSampledPages, room / kSampledIds + 2);
  bool halves = type_ == IdType::kU16;
  for (std::int64_t p = 0; p < pages; ++p) {
    const std::int64_t first = room * p / std::max<std::int64_t>(1, pages - 1);
    MUSTER_RETURN_IF_ERROR(ReadIds(first, page));
    MUSTER_RETURN_IF_ERROR(CheckIds(first, page));
    halves = halves && LooksLikeHalves(first, page);
    const std::uint64_t link[] = {fingerprint_,
                                  XXH3_64bits(page.data(), page.size() * sizeof(std::int64_t))};
    fingerprint_ = XXH3_64bits(link, sizeof link);
  }
  if (halves)
    return InvalidArgument(
        path_ + " seems to hold ids of 32 bits: every second one of 16 bits is " +
        "0; a model with a vocabulary of " + std::to_string(options_.vocab_size) +
        " words reads 16 bits (a .npy file says its own type)");
  return OkStatus();
}

std::string TokenDataset::Describe(std::span<const std::int64_t> rows) const {
  return DescribePlaces("row", {rows.begin(), rows.end()}, path_);
}

Status TokenDataset::Read(std::int64_t row, std::span<std::int64_t> ids,
                          std::span<std::int64_t> labels) const {
  const std::int64_t first = row * stride_;
  MUSTER_RETURN_IF_ERROR(ReadIds(first, ids));
  MUSTER_RETURN_IF_ERROR(CheckIds(first, ids));
  std::copy(ids.begin() + 1, ids.end(), labels.begin());
  labels.back() = kIgnoredLabel;
  return OkStatus();
}

// The ids from number `first` of the file on.
Status TokenDataset::ReadIds(std::int64_t first, std::span<std::int64_t> ids) const {
  std::vector<char> bytes(ids.size() * static_cast<std::size_t>(id_bytes()));
  MUSTER_RETURN_IF_ERROR(ReadFully(fd_.get(), path_, data_begin_ + first * id_bytes(), bytes));
  switch (type_) {
    case IdType::kU16: Widen<std::uint16_t>(bytes, ids); break;
    case IdType::kU32: Widen<std::uint32_t>(bytes, ids); break;
    case IdType::kI32: Widen<std::int32_t>(bytes, ids); break;
    case IdType::kI64: Widen<std::int64_t>(bytes, ids); break;
  }
  return OkStatus();
}

Status TokenDataset::CheckIds(std::int64_t first, std::span<const std::int64_t> ids) const {
  const auto bad = std::find_if(ids.begin(), ids.end(), [this](std::int64_t id) {
    return id < 0 || id >= options_.vocab_size;
  });
  if (bad == ids.end()) return OkStatus();
  const std::int64_t at = first + (bad - ids.begin());
  return InvalidArgument(path_ + ": row " + std::to_string(at / stride_) + ", position " +
                         std::to_string(at % stride_) + " (counted from 0): id " +
                         std::to_string(*bad) + " is outside the model's vocabulary of " +
                         std::to_string(options_.vocab_size) +
                         "; the file was made with another tokenizer");
}

std::int64_t TokenDataset::id_bytes() const {
  switch (type_) {
    case IdType::kU16: return 2;
    case IdType::kU32:
    case IdType::kI32: return 4;
    case IdType::kI64: return 8;
  }
  return 8;
}

}  // namespace muster
