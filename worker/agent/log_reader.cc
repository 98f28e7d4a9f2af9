#include "worker/agent/log_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/base/regular_file.h"
#include "common/base/status.h"
#include "worker/agent/rank_environment.h"

namespace muster::worker {

LogChunk ReadLogChunk(const ReadLog& request) {
  LogChunk chunk{.request_id = request.request_id,
                 .path = request.metrics
                             ? request.output_dir + "/metrics.jsonl"
                             : RankLogPath(request.output_dir, request.generation, request.rank)};
  // A rank may have put a FIFO in the place of its log.
  const auto log = OpenRegularFile(chunk.path);
  struct stat info {};
  if (!log.ok() || ::fstat(log->get(), &info) != 0) {
    chunk.error =
        log.ok() ? ErrnoStatus(errno, "open " + chunk.path).message() : log.status().message();
    return chunk;
  }
  const std::int64_t size = info.st_size;
  const std::int64_t begin = request.offset < 0 ? std::max<std::int64_t>(0, size + request.offset)
                                                : std::min<std::int64_t>(request.offset, size);
  const int limit = request.limit_bytes > 0 ? std::min(request.limit_bytes, kMaxLogChunkBytes)
                                            : kMaxLogChunkBytes;
  chunk.data.resize(static_cast<std::size_t>(std::min<std::int64_t>(limit, size - begin)));
  const ssize_t n = ::pread(log->get(), chunk.data.data(), chunk.data.size(), begin);
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
