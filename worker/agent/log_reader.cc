#include "worker/agent/log_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "worker/agent/rank_environment.h"

namespace muster::worker {

LogChunk ReadLogChunk(const ReadLog& request) {
  LogChunk chunk{.request_id = request.request_id,
                 .path = RankLogPath(request.output_dir, request.generation, request.rank)};
  struct stat info {};
  // A rank may have put a FIFO in the place of its log, and an open would wait for its writer.
  if (::stat(chunk.path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    chunk.error = chunk.path + " is no regular file any more";
    return chunk;
  }
  const UniqueFd fd(::open(chunk.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
    chunk.error = ErrnoStatus(errno, "open " + chunk.path).message();
    return chunk;
  }
  const std::int64_t size = info.st_size;
  const std::int64_t begin = request.offset < 0 ? std::max<std::int64_t>(0, size + request.offset)
                                                : std::min<std::int64_t>(request.offset, size);
  const int limit = request.limit_bytes > 0 ? std::min(request.limit_bytes, kMaxLogChunkBytes)
                                            : kMaxLogChunkBytes;
  chunk.data.resize(static_cast<std::size_t>(std::min<std::int64_t>(limit, size - begin)));
  const ssize_t n = ::pread(fd.get(), chunk.data.data(), chunk.data.size(), begin);
  if (n < 0) {
    chunk.error = ErrnoStatus(errno, "read " + chunk.path).message();
    chunk.data.clear();
    return chunk;
  }
  chunk.data.resize(static_cast<std::size_t>(n));
  chunk.next_offset = begin + n;
  chunk.at_end = chunk.next_offset >= size;
  return chunk;
}

}  // namespace muster::worker
