#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "common/base/files.h"
#include "trainer/core/convert.h"
#include "trainer/formats/safetensors_header.h"

namespace muster {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;
// So much goes to the disk at once, while the next is filled: at the end there is little left that
// the fsync of a large model could wait for, and every write before it takes its share.
constexpr std::int64_t kBehindBytes = 16 << 20;

Status CheckDeclarations(const std::string& path, const std::vector<TensorSpec>& tensors) {
  std::set<std::string> names;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.type != TensorType::kF64 && tensor.type != TensorType::kF32 &&
        tensor.type != TensorType::kBF16 && tensor.type != TensorType::kF16 &&
        tensor.type != TensorType::kU8)
      return Unimplemented("write " + path + ": tensor " + tensor.name + " is of type " +
                           std::string(TensorTypeName(tensor.type)));
    if (!names.insert(tensor.name).second || tensor.name == "__metadata__")
      return InvalidArgument("write " + path + ": tensor " + tensor.name + " is declared twice");
  }
  return OkStatus();
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, std::vector<TensorSpec> tensors,
    const std::map<std::string, std::string>& metadata) {
  MUSTER_RETURN_IF_ERROR(CheckDeclarations(path, tensors));
  SafetensorsWriter writer;
  writer.path_ = path;
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  writer.fd_.reset(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!writer.fd_.valid()) return ErrnoStatus(errno, "create " + temporary);
  writer.temporary_ = temporary;
  writer.buffer_ = FormatSafetensorsHeader(tensors, metadata);
  writer.tensors_ = std::move(tensors);
  return writer;
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::move(other.fd_)),
      tensors_(std::move(other.tensors_)),
      current_(other.current_),
      appended_(other.appended_),
      written_(other.written_),
      sent_(other.sent_),
      buffer_(std::move(other.buffer_)) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status SafetensorsWriter::WriteBuffer() {
  std::string_view left = buffer_;
  while (!left.empty()) {
    const ssize_t n = ::write(fd_.get(), left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write " + temporary_);
    left.remove_prefix(static_cast<std::size_t>(n));
    written_ += n;
  }
  buffer_.clear();
  return written_ - sent_ < kBehindBytes ? OkStatus() : WriteBehind();
}

// Sends what was written, and waits for what was sent before.
Status SafetensorsWriter::WriteBehind() {
  const auto sync = [this](std::int64_t begin, std::int64_t end, unsigned flags) {
    if (begin == end || ::sync_file_range(fd_.get(), begin, end - begin, flags) == 0) return 0;
    // Not every kind of file can; the fsync does it all then.
    return errno == EINVAL || errno == ENOSYS || errno == ESPIPE || errno == EOPNOTSUPP ? 0 : errno;
  };
  int error = sync(sent_, written_, SYNC_FILE_RANGE_WRITE);
  // The kernel reports an error once: one that is returned here reaches no fsync any more.
  if (error == 0) {
    error = sync(0, sent_,
                 SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  }
  sent_ = written_;
  return error == 0 ? OkStatus() : ErrnoStatus(error, "write " + temporary_);
}

void SafetensorsWriter::AppendConverted(const float* values, std::int64_t count, TensorType type) {
  const std::size_t bytes = static_cast<std::size_t>(count * TensorTypeSize(type));
  const std::size_t start = buffer_.size();
  buffer_.resize(start + bytes);
  char* out = buffer_.data() + start;
  if (type == TensorType::kF32) {
    std::memcpy(out, values, bytes);
    return;
  }
  Convert(values, ElementType::kFloat32, out, HalfType(type), count, /*add=*/false);
}

void SafetensorsWriter::SkipFinishedTensors() {
  while (current_ < tensors_.size() && appended_ == tensors_[current_].count()) {
    ++current_;
    appended_ = 0;
  }
}

const TensorSpec& SafetensorsWriter::NextTensor() {
  SkipFinishedTensors();
  MUSTER_CHECK(current_ < tensors_.size(), path_ + ": more elements than were declared");
  return tensors_[current_];
}

Status SafetensorsWriter::AppendFloats(const float* values, std::int64_t count) {
  while (count > 0) {
    const TensorSpec& tensor = NextTensor();
    MUSTER_CHECK(tensor.type != TensorType::kF64 && tensor.type != TensorType::kU8,
                 path_ + ": floats for a tensor of another type");
    const std::int64_t part =
        std::min({count, tensor.count() - appended_, static_cast<std::int64_t>(kBufferBytes / 4)});
    AppendConverted(values, part, tensor.type);
    if (buffer_.size() >= kBufferBytes) MUSTER_RETURN_IF_ERROR(WriteBuffer());
    appended_ += part;
    values += part;
    count -= part;
  }
  return OkStatus();
}

Status SafetensorsWriter::AppendStored(const void* values, std::int64_t count) {
  if (count == 0) return OkStatus();
  const TensorSpec& tensor = NextTensor();
  MUSTER_CHECK(count <= tensor.count() - appended_,
               path_ + ": more elements than tensor " + tensor.name + " has");
  const std::int64_t size = TensorTypeSize(tensor.type);
  const char* bytes = static_cast<const char*>(values);
  for (std::int64_t left = count * size; left > 0;) {
    const std::int64_t part = std::min<std::int64_t>(left, kBufferBytes);
    buffer_.append(bytes, static_cast<std::size_t>(part));
    if (buffer_.size() >= kBufferBytes) MUSTER_RETURN_IF_ERROR(WriteBuffer());
    bytes += part;
    left -= part;
  }
  appended_ += count;
  return OkStatus();
}

Status SafetensorsWriter::Finish() {
  SkipFinishedTensors();
  if (current_ < tensors_.size())
    return FailedPrecondition("write " + path_ + ": tensor " + tensors_[current_].name + " got " +
                              std::to_string(appended_) + " of " +
                              std::to_string(tensors_[current_].count()) + " elements");
  MUSTER_RETURN_IF_ERROR(WriteBuffer());
  if (::fsync(fd_.get()) != 0) return ErrnoStatus(errno, "fsync " + temporary_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return ErrnoStatus(errno, "rename " + temporary_ + " to " + path_);
  temporary_.clear();
  fd_.reset();
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  return SyncDirectory(parent.empty() ? "." : parent);
}

}  // namespace muster
