#include "trainer/data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "common/base/unique_fd.h"

namespace muster {
namespace {

constexpr std::size_t kBufferBytes = 1 << 18;

}  // namespace

ByteSource::ByteSource(std::string path, gzFile_s* file)
    : path_(std::move(path)), file_(file), buffer_(kBufferBytes) {}

Result<ByteSource> ByteSource::Open(const std::string& path) {
  // Opening a pipe would wait for its writer before it could be refused.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info = {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "open " + path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path + " is no regular file");
  // What does not begin as gzip does is passed on as it is; no text begins so.
  gzFile_s* file = gzdopen(fd.get(), "rb");
  if (file == nullptr) return ResourceExhausted("open " + path + ": no memory for its buffer");
  fd.release();
  gzbuffer(file, kBufferBytes);
  return ByteSource(path, file);
}

bool ByteSource::Fill() {
  if (!status_.ok()) return false;
  at_ = end_ = 0;
  const int n = gzread(file_.get(), buffer_.data(), static_cast<unsigned>(buffer_.size()));
  if (n > 0) {
    end_ = static_cast<std::size_t>(n);
    return true;
  }
  int error = Z_OK;
  const char* what = gzerror(file_.get(), &error);
  if (error == Z_ERRNO) {
    status_ = ErrnoStatus(errno, "read " + path_);
  } else if (error == Z_BUF_ERROR) {
    status_ = DataLoss(path_ + " is cut off: the compressed data does not end");
  } else if (error != Z_OK && error != Z_STREAM_END) {
    status_ = DataLoss(path_ + " is damaged: " + what);
  }
  return false;
}

bool ByteSource::Line(std::size_t max_bytes, std::string* out) {
  bool any = false;
  while (at_ < end_ || Fill()) {
    any = true;
    const char* begin = buffer_.data() + at_;
    const auto* feed = static_cast<const char*>(std::memchr(begin, '\n', end_ - at_));
    const auto length = static_cast<std::size_t>((feed ? feed : buffer_.data() + end_) - begin);
    if (out->size() + length > max_bytes) {
      status_ = InvalidArgument("the line is longer than " + std::to_string(max_bytes) +
                                " bytes; a .jsonl file has a row on each line");
      return true;
    }
    out->append(begin, length);
    at_ += length + (feed ? 1 : 0);
    if (feed) break;
  }
  return any;
}

}  // namespace muster
